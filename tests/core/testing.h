// Tiny test frame of the core's test programs: no dependencies, one file per program.
//
//   TEST(SumsIntegers) { EXPECT_EQ(Sum(1, 2), 3); }
//   TEST_MAIN()
//
// The program runs every TEST, prints failures with file and line and at the end "N passed, N
// failed", and returns non-zero if one failed. An argument runs only the tests whose name contains
// it; --list prints the names. EXPECT_... may be used from any thread; a failed one does not end
// the test, ASSERT_... leaves the function.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {
namespace testing {

// Whether ThreadSanitizer watches. It looks at how threads meet, not at arithmetic, and makes every
// access many times slower: tests that sweep over values take a few of them.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Whether any sanitizer watches: long programs take fewer steps.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = kThreadSanitizer;
#endif

// How many of `n` values a sweep takes.
template <typename Integer>
constexpr Integer Sweep(Integer n) {
  return kThreadSanitizer ? (n + 9) / 10 : n;
}

struct Test {
  const char* name;
  void (*function)();
};

class Registry {
 public:
  static Registry& Get() {
    static Registry registry;
    return registry;
  }

  bool Add(const char* name, void (*function)()) {
    tests_.push_back({name, function});
    return true;
  }

  // Prints at most kMostPrinted failures of a test: a broken loop should not flood the terminal.
  void Fail(const char* file, int line, const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++failures_;
    if (failures_ <= kMostPrinted) {
      std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
    } else if (failures_ == kMostPrinted + 1) {
      std::fprintf(stderr, "(further failures of this test are not printed)\n");
    }
  }

  int failures() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failures_;
  }

  int Main(int argc, char** argv) {
    const std::string filter = argc > 1 ? argv[1] : "";
    int passed = 0;
    int failed = 0;
    for (const Test& test : tests_) {
      if (filter == "--list") {
        std::printf("%s\n", test.name);
        continue;
      }
      if (std::string(test.name).find(filter) == std::string::npos) continue;
      (Run(test) ? passed : failed) += 1;
    }
    if (filter == "--list") return 0;
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
  }

 private:
  static constexpr int kMostPrinted = 20;

  bool Run(const Test& test) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      failures_ = 0;
    }
    test.function();
    const bool ok = failures() == 0;
    std::printf("[%s] %s\n", ok ? "  ok  " : "FAILED", test.name);
    std::fflush(stdout);
    return ok;
  }

  std::vector<Test> tests_;
  std::mutex mutex_;
  int failures_ = 0;
};

// Printing of any value that has operator<<; enumerations as numbers.
template <typename T>
std::string Print(const T& value) {
  std::ostringstream s;
  if constexpr (std::is_enum<T>::value) {
    s << static_cast<long long>(value);
  } else if constexpr (std::is_same<T, Status>::value) {
    s << value.ToString();
  } else if constexpr (sizeof(T) == 1 && std::is_integral<T>::value) {
    s << static_cast<int>(value);
  } else {
    s << value;
  }
  return s.str();
}
template <typename T>
std::string Print(const std::vector<T>& values) {
  std::string s = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    s += (i > 0 ? ", " : "") + Print(static_cast<T>(values[i]));
  }
  return s + "}";
}

template <typename A, typename B>
bool ExpectEqual(const char* file, int line, const char* text, const A& a, const B& b) {
  if (a == b) return true;
  Registry::Get().Fail(file, line, std::string(text) + ": " + Print(a) + " against " + Print(b));
  return false;
}

inline bool ExpectTrue(const char* file, int line, const char* text, bool value) {
  if (!value) Registry::Get().Fail(file, line, std::string("expected ") + text);
  return value;
}

inline bool ExpectOk(const char* file, int line, const char* text, const Status& status) {
  if (!status.ok()) {
    Registry::Get().Fail(file, line, std::string(text) + " failed: " + status.ToString());
  }
  return status.ok();
}

// The status has this code and its message contains `part`.
inline bool ExpectError(const char* file, int line, const char* text, const Status& status,
                        StatusCode code, const std::string& part) {
  const bool good = status.code() == code && status.message().find(part) != std::string::npos;
  if (!good) {
    Registry::Get().Fail(file, line,
                         std::string(text) + " gave '" + status.ToString() +
                             "'. Expected: " + StatusCodeName(code) + " with '" + part + "' in it");
  }
  return good;
}

inline bool ExpectContains(const char* file, int line, const std::string& text,
                           const std::string& part) {
  const bool good = text.find(part) != std::string::npos;
  if (!good) Registry::Get().Fail(file, line, "'" + text + "' does not contain '" + part + "'");
  return good;
}

// Runs function(0) ... function(n - 1) in n threads and waits for all of them.
template <typename F>
void RunThreads(int n, const F& function) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&function, i] { function(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace testing
}  // namespace tfhvd

#define TEST(name)                                                   \
  static void TfhvdTest##name();                                     \
  [[maybe_unused]] static const bool tfhvd_test_registered_##name =  \
      ::tfhvd::testing::Registry::Get().Add(#name, TfhvdTest##name); \
  static void TfhvdTest##name()

#define TEST_MAIN() \
  int main(int argc, char** argv) { return ::tfhvd::testing::Registry::Get().Main(argc, argv); }

#define EXPECT_TRUE(x) (void)::tfhvd::testing::ExpectTrue(__FILE__, __LINE__, #x, (x))
#define EXPECT_FALSE(x) (void)::tfhvd::testing::ExpectTrue(__FILE__, __LINE__, "not " #x, !(x))
#define EXPECT_EQ(a, b) \
  (void)::tfhvd::testing::ExpectEqual(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define EXPECT_OK(s) (void)::tfhvd::testing::ExpectOk(__FILE__, __LINE__, #s, (s))
#define EXPECT_ERROR(s, code, part) \
  (void)::tfhvd::testing::ExpectError(__FILE__, __LINE__, #s, (s), (code), (part))
#define EXPECT_CONTAINS(text, part) \
  (void)::tfhvd::testing::ExpectContains(__FILE__, __LINE__, (text), (part))

#define ASSERT_TRUE(x) \
  if (!::tfhvd::testing::ExpectTrue(__FILE__, __LINE__, #x, (x))) return
#define ASSERT_EQ(a, b) \
  if (!::tfhvd::testing::ExpectEqual(__FILE__, __LINE__, #a " == " #b, (a), (b))) return
#define ASSERT_OK(s) \
  if (!::tfhvd::testing::ExpectOk(__FILE__, __LINE__, #s, (s))) return
