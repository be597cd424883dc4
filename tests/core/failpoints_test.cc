// Failpoints: the table of places, and what TFHVD_TEST_FAILPOINTS may say.
#include "cc/base/failpoints.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// How a process ends, or is stopped, that comes to places one after the other: the signal; 0 where
// it comes to its own end. It has rank 1.
int EndOf(const std::string& text, const std::vector<Failpoint>& places) {
  const pid_t child = fork();
  if (child == 0) {
    Failpoints failpoints;
    if (!Failpoints::Parse(text, 1, &failpoints).ok()) _exit(1);
    for (const Failpoint place : places) failpoints.Hit(place);
    _exit(0);
  }
  int status = 0;
  (void)waitpid(child, &status, WUNTRACED);
  if (!WIFSTOPPED(status)) return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const int by = WSTOPSIG(status);
  (void)kill(child, SIGKILL);
  (void)waitpid(child, &status, 0);
  return by;
}

TEST(TheTableIsInTheOrderOfTheNumbers) {
  std::set<std::string> names;
  int number = 0;
  for (const FailpointRow& row : AllFailpoints()) {
    EXPECT_EQ(static_cast<int>(row.point), number++);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_TRUE(FindFailpoint(row.name) == &row);
  }
  EXPECT_EQ(number, static_cast<int>(Failpoint::kClosing) + 1);
}

TEST(AProcessEndsWhereItIsToldTo) {
  const Failpoint read = Failpoint::kRosterRead;
  const Failpoint left = Failpoint::kLeft;
  EXPECT_EQ(EndOf("roster_read@1", {left, read}), SIGKILL);
  EXPECT_EQ(EndOf("roster_read@1=stop", {read}), SIGSTOP);
  EXPECT_EQ(EndOf("left@0,roster_read@1", {left, read}), SIGKILL);
  EXPECT_EQ(EndOf("roster_read@11", {read}), 0);
  EXPECT_EQ(EndOf("", {read}), 0);
  EXPECT_EQ(EndOf("roster_read@1#2", {read}), 0);
  EXPECT_EQ(EndOf("roster_read@1#2", {read, read}), SIGKILL);
  EXPECT_EQ(EndOf("left:roster_read@1", {read}), 0);
  EXPECT_EQ(EndOf("left:roster_read@1", {read, left, read}), SIGKILL);
  EXPECT_EQ(EndOf("left#2:roster_read@1#2=kill", {left, read, left, read}), 0);
  EXPECT_EQ(EndOf("left#2:roster_read@1#2=kill", {left, left, read, read}), SIGKILL);
  EXPECT_EQ(EndOf("left:left@1", {left}), 0);
}

TEST(WhatNamesNoFailpointIsRefused) {
  Failpoints failpoints;
  for (const char* text :
       {"nowhere@0", "left", "left@", "left@x", "left@1#0", "left@1#x", "left@1=raise",
        "nowhere:left@1", "left@1,,left@2", "left@-1", "left#0:left@1"}) {
    EXPECT_ERROR(Failpoints::Parse(text, 0, &failpoints), StatusCode::kInvalidArgument,
                 "TFHVD_TEST_FAILPOINTS");
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
