// A plug-in of clang-tidy: checks look at this project's declarations only, not at the standard library's,
// in which nothing is reported anyway and four fifths of the time would go. scripts/checks/tidy.py builds it.
//
// From its version 22 on clang-tidy does so by itself.
//
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "clang-tidy/ClangTidyCheck.h"
#include "clang-tidy/ClangTidyModule.h"
#include "clang-tidy/ClangTidyModuleRegistry.h"
#include "clang/AST/ASTContext.h"
#include "clang/ASTMatchers/ASTMatchFinder.h"

namespace {

using clang::ast_matchers::MatchFinder;

// Finds nothing. The whole file is the first thing that is matched, before its declarations are listed for
// the walk through them: by then the list has been cut.
class OwnCode : public clang::tidy::ClangTidyCheck {
 public:
  using ClangTidyCheck::ClangTidyCheck;

  void registerMatchers(MatchFinder* finder) override {
    finder->addMatcher(clang::ast_matchers::translationUnitDecl().bind("file"), this);
  }

  void check(const MatchFinder::MatchResult& found) override {
    const clang::SourceManager& source = *found.SourceManager;
    std::vector<clang::Decl*> own;
    for (clang::Decl* declared :
         found.Nodes.getNodeAs<clang::TranslationUnitDecl>("file")->decls()) {
      if (!source.isInSystemHeader(source.getExpansionLoc(declared->getLocation()))) {
        own.push_back(declared);
      }
    }
    found.Context->setTraversalScope(own);
  }
};

class OwnCodeModule : public clang::tidy::ClangTidyModule {
 public:
  void addCheckFactories(clang::tidy::ClangTidyCheckFactories& factories) override {
    factories.registerCheck<OwnCode>("dovetail-own-code");
  }
};

const clang::tidy::ClangTidyModuleRegistry::Add<OwnCodeModule> kAdded(
    "dovetail", "only this project's declarations");

}  // namespace
