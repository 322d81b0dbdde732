// Shapes from config.json files, as their publishers write them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/hugging_face.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

std::string file_of(const std::string& text) {
  const std::string path = ::testing::TempDir() + "config.json";
  std::ofstream(path) << text;
  return path;
}

// The keys of meta-llama/Llama-3.1-8B's file.
constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "attention_bias": false, "hidden_size": 4096, "intermediate_size": 14336,
 "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
 "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 500000.0,
 "rope_scaling": {"factor": 8.0}, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
 "vocab_size": 128256})";

constexpr const char* kDeepSeek = R"({"model_type": "deepseek_v3", "first_k_dense_replace": 3,
 "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
 "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "n_routed_experts": 256,
 "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
 "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280})";

TEST(HuggingFaceTest, LlamaIsLlama) {
  const Model model = load_config(file_of(kLlama));
  EXPECT_EQ(parameters(model), 8'030'261'248);
  EXPECT_EQ(model.attention.head_dim, 128);
  const Job job = parse_job(file_of(kLlama) + ":tp=2,dp=4");
  EXPECT_EQ(job.layout.world(), 8);
}

TEST(HuggingFaceTest, DeepSeekHasLatentAttentionAndExperts) {
  EXPECT_EQ(parameters(load_config(file_of(kDeepSeek))), 671'026'404'352);
}

// The keys that transformers 5.17 writes of Qwen3-30B-A3B.
std::string qwen3_moe(const std::string& more) {
  return R"({"model_type": "qwen3_moe", "attention_bias": false, "head_dim": 128, "hidden_size": 2048,
 "intermediate_size": 6144, "max_position_embeddings": 40960, "moe_intermediate_size": 768,
 "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 8,
 "num_hidden_layers": 48, "num_key_value_heads": 4, "num_local_experts": 128,
 "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "sliding_window": null,
 "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936)" +
         more + "}";
}

TEST(HuggingFaceTest, TransformersFiveNamesExpertsOtherwise) {
  const Model model = load_config(file_of(qwen3_moe("")));
  EXPECT_EQ(parameters(model), 30'532'122'624);
  EXPECT_EQ(model.experts->count, 128);
  const Model dense = load_config(file_of(qwen3_moe(R"(, "mlp_only_layers": [0, 1])")));
  EXPECT_EQ(dense.experts->first_layer, 2);
  EXPECT_EQ(dense.inner, 6144);
}

TEST(HuggingFaceTest, RefusalsNameFileAndKey) {
  const auto refusal = [](const std::string& text) {
    try {
      load_config(file_of(text));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(R"({"model_type": "mamba"})").find("model_type"), std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "llama", "hidden_size": 8})").find("num_"),
            std::string::npos);
  EXPECT_NE(
      refusal(qwen3_moe(R"(, "decoder_sparse_step": 2)")).find("/decoder_sparse_step: expected 1"),
      std::string::npos);
  EXPECT_NE(refusal(qwen3_moe(R"(, "mlp_only_layers": [0, 3])"))
                .find("/mlp_only_layers: expected the first"),
            std::string::npos);
  std::string types = R"(, "layer_types": ["full_attention")";
  for (int layer = 1; layer < 48; ++layer) types += R"(, "sliding_attention")";
  EXPECT_NE(
      refusal(qwen3_moe(types + "]")).find("/layer_types: expected a window in the layers that"),
      std::string::npos);
}

}  // namespace
}  // namespace dovetail::jobs
