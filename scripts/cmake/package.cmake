# cmake --install, and a Debian package of it (cpack): the tool, its data, documents, completions, manual.
#
#   PREFIX/bin/dovetail                      finds its data beside itself, so that PREFIX may be moved
#   PREFIX/lib/dovetail/libdovetail_cuda.so  where it was built; not in the package, for Debian has no NCCL 2.28
#   PREFIX/lib/libdovetail.so                for C++ programs, with PREFIX/include/dovetail and PREFIX/lib/cmake/dovetail, where
#                                            DOVETAIL_LIBRARY is on; not in the package (docs/cpp.md)
#   PREFIX/share/dovetail/models             machines and measured steps
#   PREFIX/share/dovetail/answers/validation public measurements, with their origin
#   PREFIX/share/dovetail/python             dovetail_torch
#   PREFIX/share/doc/dovetail                README, docs, schemas, examples
#   PREFIX/share/man/man1, share/bash-completion, share/zsh, share/fish   written by the tool itself
include(GNUInstallDirs)
set(DOVETAIL_SHARE ${CMAKE_INSTALL_DATADIR}/dovetail)
set(WRITTEN ${CMAKE_BINARY_DIR}/written)

install(TARGETS dovetail RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET dovetail_cuda)
  install(TARGETS dovetail_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dovetail COMPONENT cuda)
endif()
if(DOVETAIL_LIBRARY)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${WRITTEN}/dovetailConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  set(DEV COMPONENT dev EXCLUDE_FROM_ALL)  # of component dev alone: whoever wants the tool need not build the library
  set(DOVETAIL_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/dovetail)
  install(TARGETS dovetail_library EXPORT dovetail LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${DEV}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT dovetail FILE dovetailConfig.cmake NAMESPACE dovetail:: DESTINATION ${DOVETAIL_CMAKE} ${DEV})
  install(FILES ${WRITTEN}/dovetailConfigVersion.cmake DESTINATION ${DOVETAIL_CMAKE} ${DEV})
  install(FILES cli/dovetail.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dovetail ${DEV})
  install(FILES base/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dovetail/base ${DEV})
endif()
install(DIRECTORY models/clusters models/workloads DESTINATION ${DOVETAIL_SHARE}/models)
install(DIRECTORY models/rates/gemm DESTINATION ${DOVETAIL_SHARE}/models/rates)  # of dovetail_torch's compare-gpu
install(DIRECTORY answers/validation/data DESTINATION ${DOVETAIL_SHARE}/answers/validation)
install(FILES answers/validation/README.md DESTINATION ${DOVETAIL_SHARE}/answers/validation)
install(DIRECTORY python/dovetail_torch DESTINATION ${DOVETAIL_SHARE}/python PATTERN __pycache__ EXCLUDE)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN __pycache__ EXCLUDE)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What the tool says of itself, written when it is installed: it was built by then.
install(CODE "
  file(MAKE_DIRECTORY \"${WRITTEN}\")
  foreach(PAIR bash:dovetail zsh:_dovetail fish:dovetail.fish man:dovetail.1)
    string(REGEX REPLACE \":.*\" \"\" KIND \${PAIR})
    string(REGEX REPLACE \".*:\" \"\" NAME \${PAIR})
    execute_process(COMMAND \"${CMAKE_COMMAND}\" -E env \"DOVETAIL_DATA=${PROJECT_SOURCE_DIR}/models\"
                            \"$<TARGET_FILE:dovetail>\" completion \${KIND}
                    OUTPUT_FILE \"${WRITTEN}/\${NAME}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND gzip -9nf \"${WRITTEN}/dovetail.1\" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nc \"${PROJECT_SOURCE_DIR}/scripts/cmake/debian_changelog\"
                  OUTPUT_FILE \"${WRITTEN}/changelog.gz\" COMMAND_ERROR_IS_FATAL ANY)
")
install(FILES ${WRITTEN}/dovetail DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${WRITTEN}/_dovetail DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${WRITTEN}/dovetail.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${WRITTEN}/dovetail.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${WRITTEN}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES scripts/cmake/debian_copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dovetail)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "dovetail maintainers <maintainers@dovetail.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "overlap of gradient communication and computation in training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Predicts the step time of data-parallel training for every bucket size and\n schedule, finds the best with a bound on how far it can be from optimal,\n executes it on real ranks and lays the measurement beside the prediction.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin, python3-torch")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};Unspecified;/")  # all but COMPONENTs cuda and dev
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
include(CPack)
