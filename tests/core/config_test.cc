// Settings: names, ranges, defaults, and what is said of mistakes.
#include "cc/base/config.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Config Parse(const Pairs& environment, std::vector<std::string>* warnings = nullptr) {
  Config config;
  std::vector<std::string> ignored;
  EXPECT_OK(ParseConfig(environment, &config, warnings != nullptr ? warnings : &ignored));
  return config;
}

TEST(TheDefaultsOfTheTableAreThoseOfTheStruct) {
  Pairs environment;
  for (const Setting& s : Settings()) {
    environment.emplace_back(std::string("TFHVD_") + s.name, s.default_text);
  }
  const Config written = Parse(environment);
  const Config none = Parse({});
  EXPECT_EQ(written.fusion_threshold, none.fusion_threshold);
  EXPECT_EQ(written.alone_bytes, none.alone_bytes);
  EXPECT_EQ(written.bucket_bytes, none.bucket_bytes);
  EXPECT_EQ(written.autotune, none.autotune);
  EXPECT_EQ(written.autotune_log, none.autotune_log);
  EXPECT_EQ(written.autotune_file, none.autotune_file);
  EXPECT_EQ(written.cycle_time, none.cycle_time);
  EXPECT_EQ(written.cache_capacity, none.cache_capacity);
  EXPECT_EQ(written.stall_check, none.stall_check);
  EXPECT_EQ(written.stall_check_time, none.stall_check_time);
  EXPECT_EQ(written.stall_shutdown_time, none.stall_shutdown_time);
  EXPECT_TRUE(written.on_hang == none.on_hang);
  EXPECT_EQ(written.shutdown_timeout, none.shutdown_timeout);
  EXPECT_EQ(written.log_level, none.log_level);
  EXPECT_TRUE(written.check_sync == none.check_sync);
  EXPECT_EQ(written.divergence_steps, none.divergence_steps);
  EXPECT_TRUE(written.on_divergence == none.on_divergence);
  EXPECT_TRUE(written.on_not_finite == none.on_not_finite);
  EXPECT_EQ(written.metrics_port, none.metrics_port);
  EXPECT_EQ(written.metrics_file, none.metrics_file);
}

TEST(EverySettingIsDescribed) {
  std::set<std::string> names;
  for (const Setting& s : Settings()) {
    EXPECT_TRUE(names.insert(s.name).second);
    EXPECT_TRUE(std::string(s.range).size() > 2);
    const std::string meaning = s.meaning;
    EXPECT_TRUE(!meaning.empty() && meaning.back() == '.');
  }
}

TEST(EveryValueIsTaken) {
  const Config c = Parse({{"TFHVD_FUSION_THRESHOLD", "0"},
                          {"TFHVD_CYCLE_TIME", "2.5"},
                          {"TFHVD_CACHE_CAPACITY", "7"},
                          {"TFHVD_STALL_CHECK_DISABLE", "1"},
                          {"TFHVD_STALL_CHECK_TIME_SECONDS", "0.5"},
                          {"TFHVD_STALL_SHUTDOWN_TIME_SECONDS", "8"},
                          {"TFHVD_SHUTDOWN_TIMEOUT_SECONDS", "9"},
                          {"TFHVD_LOG_LEVEL", "DEBUG"}});
  EXPECT_EQ(c.fusion_threshold, int64_t{0});
  EXPECT_EQ(c.cycle_time, 2.5);
  EXPECT_EQ(c.cache_capacity, int64_t{7});
  EXPECT_FALSE(c.stall_check);
  EXPECT_EQ(c.stall_check_time, 0.5);
  EXPECT_EQ(c.stall_shutdown_time, 8.0);
  EXPECT_EQ(c.shutdown_timeout, 9.0);
  EXPECT_TRUE(c.log_level == LogLevel::kDebug);
  EXPECT_EQ(Parse({{"TFHVD_PORTS", "20000-20100"}}).ports, std::string("20000-20100"));
  EXPECT_EQ(Parse({{"TFHVD_PORTS", "7-7"}}).ports, std::string("7-7"));
  EXPECT_EQ(Parse({{"TFHVD_METRICS_ADDRESS", "0.0.0.0"}}).metrics_address, std::string("0.0.0.0"));
  EXPECT_TRUE(Parse({{"TFHVD_ON_HANG", "abort"}}).on_hang == OnHang::kAbort);
  EXPECT_TRUE(Parse({{"TFHVD_CHECK_SYNC", "warn"}}).check_sync == CheckSync::kWarn);
  EXPECT_TRUE(Parse({{"TFHVD_CHECK_SYNC", "off"}}).check_sync == CheckSync::kOff);
  EXPECT_EQ(Parse({{"TFHVD_DIVERGENCE_STEPS", "0"}}).divergence_steps, int64_t{0});
  EXPECT_TRUE(Parse({{"TFHVD_ON_DIVERGENCE", "heal"}}).on_divergence == OnDivergence::kHeal);
  EXPECT_TRUE(Parse({{"TFHVD_ON_NOT_FINITE", "off"}}).on_not_finite == OnNotFinite::kOff);
  EXPECT_TRUE(Parse({{"TFHVD_ON_OUTLIER", "skip"}}).on_outlier == OnOutlier::kSkip);
}

TEST(WhatIsRememberedIsInTheUsersCache) {
  EXPECT_EQ(Parse({}).cache_folder, std::string());
  EXPECT_EQ(Parse({{"HOME", "/home/u"}}).cache_folder, std::string("/home/u/.cache/tfhvd"));
  EXPECT_EQ(Parse({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/c"}}).cache_folder,
            std::string("/c/tfhvd"));
  EXPECT_EQ(Parse({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "relative"}}).cache_folder,
            std::string("/home/u/.cache/tfhvd"));
  EXPECT_TRUE(Parse({{"HOROVOD_AUTOTUNE", "1"}}).autotune);
  EXPECT_EQ(Parse({{"HOROVOD_AUTOTUNE_LOG", "f"}}).autotune_log, std::string("f"));
}

TEST(ATimelineThatBeginsLaterHasNoPathYet) {
  EXPECT_EQ(Parse({{"HOROVOD_TIMELINE", "DYNAMIC"}}).timeline, std::string());
  EXPECT_EQ(Parse({{"HOROVOD_TIMELINE", "a"}}).timeline, std::string("a"));
}

TEST(HorovodsNamesAreAcceptedAndOursWin) {
  EXPECT_EQ(Parse({{"HOROVOD_FUSION_THRESHOLD", "5"}}).fusion_threshold, int64_t{5});
  for (const Pairs& pairs :
       {Pairs{{"HOROVOD_FUSION_THRESHOLD", "5"}, {"TFHVD_FUSION_THRESHOLD", "6"}},
        Pairs{{"TFHVD_FUSION_THRESHOLD", "6"}, {"HOROVOD_FUSION_THRESHOLD", "5"}}}) {
    EXPECT_EQ(Parse(pairs).fusion_threshold, int64_t{6});
  }
  std::vector<std::string> warnings;
  Parse({{"HOROVOD_NO_SUCH_THING", "1"}, {"PATH", "x"}}, &warnings);
  EXPECT_EQ(warnings.size(), size_t{0});  // Horovod's own business
  Parse({{"HOROVOD_FUSION_TRESHOLD", "1"}, {"HOROVOD_FUSION_THRESHOLD", "5"}}, &warnings);
  EXPECT_EQ(warnings.size(), size_t{1});
  EXPECT_EQ(warnings.at(0),
            std::string("HOROVOD_FUSION_TRESHOLD is not a setting of tfhvd and has no effect. Did "
                        "you mean HOROVOD_FUSION_THRESHOLD?"));
}

TEST(BadValuesAreRefused) {
  const Pairs bad = {{"TFHVD_FUSION_THRESHOLD", "-1"},
                     {"TFHVD_FUSION_THRESHOLD", "1.5"},
                     {"TFHVD_FUSION_THRESHOLD", "64MB"},
                     {"TFHVD_FUSION_THRESHOLD", ""},
                     {"TFHVD_FUSION_THRESHOLD", "1e30"},
                     {"TFHVD_CYCLE_TIME", "nan"},
                     {"TFHVD_CYCLE_TIME", "inf"},
                     {"TFHVD_CACHE_CAPACITY", "1000001"},
                     {"TFHVD_STALL_CHECK_DISABLE", "yes"},
                     {"TFHVD_STALL_CHECK_TIME_SECONDS", "0"},
                     {"TFHVD_LOG_LEVEL", "loud"},
                     {"TFHVD_CHECK_SYNC", "yes"},
                     {"TFHVD_ON_HANG", "end"},
                     {"TFHVD_ENCRYPT", "yes"},
                     {"TFHVD_PORTS", "20000"},
                     {"TFHVD_PORTS", "20000-"},
                     {"TFHVD_PORTS", "0-20000"},
                     {"TFHVD_PORTS", "20001-20000"},
                     {"TFHVD_PORTS", "20000-65536"},
                     {"TFHVD_PORTS", "2e4-3e4"},
                     {"TFHVD_PORTS", "1-2-3"},
                     {"HOROVOD_CYCLE_TIME", "fast"}};
  for (const auto& pair : bad) {
    Config config;
    std::vector<std::string> warnings;
    EXPECT_ERROR(ParseConfig({pair}, &config, &warnings), StatusCode::kInvalidArgument,
                 "The environment variable " + pair.first +
                     " has a value that tfhvd cannot use. Received: '" + pair.second +
                     "'. Expected: ");
  }
}

TEST(ATypingErrorIsReportedWithTheNearestName) {
  std::vector<std::string> warnings;
  Parse({{"TFHVD_FUSION_TRESHOLD", "1"},
         {"TFHVD_LAUNCH_ANYTHING", "1"},
         {"TFHVD_TEST_X", "1"},
         {"TFHVD_RESTART_COUNT", "1"}},
        &warnings);
  ASSERT_EQ(warnings.size(), size_t{1});
  EXPECT_CONTAINS(warnings[0], "TFHVD_FUSION_TRESHOLD is not a setting");
  EXPECT_CONTAINS(warnings[0], "Did you mean TFHVD_FUSION_THRESHOLD?");
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
