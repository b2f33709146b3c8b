#include "base/config.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/source_folder.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ConfigTest, DefaultsHoldWhereNothingIsSet) {
  absl::StatusOr<Config> config = ParseConfig({{"PATH", "/bin"}, {"TUTTI_RANK", ""}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->rank, std::nullopt);
  EXPECT_EQ(config->timeout, absl::Seconds(300));
  EXPECT_EQ(config->measure_links, std::nullopt);
  EXPECT_EQ(config->transport, "auto");
}

TEST(ConfigTest, ReadsEveryKindOfValue) {
  absl::StatusOr<Config> config = ParseConfig({{"TUTTI_RANK", "3"},
                                               {"TUTTI_TIMEOUT", "0.5"},
                                               {"TUTTI_ARENA_BYTES", "64M"},
                                               {"TUTTI_TRANSPORT", "ucx"},
                                               {"TUTTI_CONNECTIONS", "64"},
                                               {"TUTTI_GPU_TRANSPORT", "staged"},
                                               {"TUTTI_VERIFY", "never"},
                                               {"TUTTI_MEASURE_LINKS", "0"},
                                               {"TUTTI_NODE", "b"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank, 3);
  EXPECT_EQ(config->timeout, absl::Milliseconds(500));
  EXPECT_EQ(config->arena_bytes, 64 << 20);
  EXPECT_EQ(config->transport, "ucx");
  EXPECT_EQ(config->connections, 64);
  EXPECT_EQ(config->gpu_transport, "staged");
  EXPECT_EQ(config->verify, "never");
  EXPECT_EQ(config->measure_links, false);
  EXPECT_EQ(config->node, "b");
  EXPECT_EQ(ParseConfig({{"TUTTI_TIMEOUT", "inf"}})->timeout, absl::InfiniteDuration());
  EXPECT_EQ(ParseConfig({{"TUTTI_TIMEOUT", "1e10"}})->timeout, absl::Seconds(10'000'000'000));
  EXPECT_EQ(ParseConfig({{"TUTTI_TIMEOUT", "1e300"}})->timeout, absl::InfiniteDuration());
}

TEST(ConfigTest, AWrongValueNamesTheVariableAndWhatWouldBeRight) {
  const struct {
    const char *name, *value, *expected;
  } kCases[] = {
      {"TUTTI_RANK", "abc", "integer"},
      {"TUTTI_RANK", "-1", "integer"},
      {"TUTTI_TIMEOUT", "soon", "seconds"},
      {"TUTTI_TIMEOUT", "0", "seconds"},
      {"TUTTI_TIMEOUT", "nan", "seconds"},
      {"TUTTI_TIMEOUT", "1e-30", "seconds"},
      {"TUTTI_ARENA_BYTES", "M", "bytes"},
      {"TUTTI_ARENA_BYTES", "9999999999G", "bytes"},
      {"TUTTI_ARENA_BYTES", "1T", "bytes"},
      {"TUTTI_TRANSPORT", "tcp", "auto"},
      {"TUTTI_MEASURE_LINKS", "2", "0 or 1"},
      {"TUTTI_CONNECTIONS", "0", "an integer from 1 to 64"},
      {"TUTTI_CONNECTIONS", "65", "an integer from 1 to 64"},
      {"TUTTI_CONNECTIONS", "two", "an integer from 1 to 64"},
      {"TUTTI_VERIFY", "yes", "auto, always or never"},
      {"TUTTI_GPU_TRANSPORT", "ucx", "auto, nccl or staged"},
  };
  for (const auto& [name, value, expected] : kCases) {
    absl::Status status = ParseConfig({{name, value}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << "=" << value;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(name, "=", value)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

TEST(ConfigTest, SaysWhereEachValueComesFromAndHidesTheSecret) {
  absl::StatusOr<std::vector<ConfigEntry>> entries =
      DescribeConfig({{"TUTTI_TIMEOUT", "7"}, {"TUTTI_JOB_SECRET", "0123"}, {"TUTTI_NODE", ""}});
  ASSERT_TRUE(entries.ok());
  int seen = 0;
  for (const ConfigEntry& entry : *entries) {
    EXPECT_FALSE(entry.doc.empty()) << entry.name;
    EXPECT_EQ(entry.value.find("0123"), std::string::npos);
    if (entry.name == "TUTTI_TIMEOUT") seen += entry.value == "7" && entry.origin == "environment";
    if (entry.name == "TUTTI_JOB_SECRET") seen += entry.value == "(set)" && entry.origin == "environment";
    if (entry.name == "TUTTI_NODE") seen += entry.value.empty() && entry.origin == "default";
    if (entry.name == "TUTTI_ARENA_BYTES") seen += entry.value == "16G" && entry.origin == "default";
  }
  EXPECT_EQ(seen, 4);
}

TEST(ConfigTest, WarnsOfUnknownVariablesWithTheNearestName) {
  EXPECT_THAT(UnknownVariables({{"TUTTI_TIMEOUT", "1"}, {"TUTTI_DEPS", "/opt"}, {"TUTTI_COMPAT", "1"}, {"RANK", "0"}}),
              IsEmpty());
  EXPECT_THAT(
      UnknownVariables({{"TUTTI_TIMEOT", "1"}, {"TUTTI_SHEDULE", "x"}}),
      ElementsAre(HasSubstr("TUTTI_SHEDULE is no variable of Tutti and has no effect; did you mean TUTTI_SCHEDULE?"),
                  HasSubstr("did you mean TUTTI_TIMEOUT?")));
}

TEST(ConfigTest, ANameThatIsNearToNoVariableIsWarnedOfWithoutAGuess) {
  EXPECT_THAT(
      UnknownVariables({{"TUTTI_FRUTTI", "1"}}),
      ElementsAre("TUTTI_FRUTTI is no variable of Tutti and has no effect; docs/configuration.md lists the variables"));
}

// Whatever part of Tutti reads a variable: a name that is missing in the list would be called unknown.
TEST(ConfigTest, KnowsEveryVariableThatTheSourcesName) {
  const std::regex quoted(R"((?:["']|ENV\{)(TUTTI_[A-Z_]*[A-Z])["'}])");
  Environment environment;
  for (const char* folder : {"src", "bindings", "transports", "algorithms", "docs/examples", "cmake"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(SourceFolder() / folder)) {
      const std::string type = entry.path().extension();
      if (type != ".cc" && type != ".h" && type != ".py" && type != ".cmake") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (std::smatch match; std::regex_search(line, match, quoted)) environment[match[1]] = entry.path();
      }
    }
  }
  EXPECT_TRUE(environment.contains("TUTTI_TIMEOUT") && environment.contains("TUTTI_COMPAT") &&
              environment.contains("TUTTI_TORCH_DIR"));
  EXPECT_THAT(UnknownVariables(environment), IsEmpty());
}

TEST(ConfigTest, TheDocsAreInSync) {
  std::ifstream file(SourceFolder() / "docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), ConfigurationMarkdown()) << "docs/configuration.md is out of date: write this text to it";
}

}  // namespace
}  // namespace tutti
