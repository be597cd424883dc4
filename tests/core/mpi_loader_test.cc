// The way to MPI where there is none: each obstacle has a message that says what to type. Needs no
// MPI.
#include "cc/backends/mpi/mpi_loader.h"

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

Status Load(const std::string& file) {
  const MpiApi* api = nullptr;
  const Status status = LoadMpiApiFrom(file, &api);
  EXPECT_TRUE(api == nullptr);
  return status;
}

TEST(AMissingLibraryIsABuildWithoutMpi) {
  const Status status = Load("/nowhere/libtfhvd_mpi.so");
  EXPECT_ERROR(status, StatusCode::kUnavailable, "built without MPI");
  EXPECT_CONTAINS(status.message(), "/nowhere/libtfhvd_mpi.so");
  EXPECT_CONTAINS(status.message(), "MPICC");
}

TEST(AFileThatIsNoLibraryIsSaidToBeUnusable) {
  std::FILE* const file = std::fopen("not_a_library.so", "w");
  ASSERT_TRUE(file != nullptr);
  std::fputs("text", file);
  std::fclose(file);
  const Status status = Load("./not_a_library.so");
  EXPECT_ERROR(status, StatusCode::kUnavailable, "cannot be loaded");
  EXPECT_CONTAINS(status.message(), "not_a_library.so");
  std::remove("not_a_library.so");
}

TEST(ALibraryOfSomethingElseIsRefused) {
  Dl_info info;
  // The C library's own file.
  ASSERT_TRUE(dladdr(reinterpret_cast<void*>(&std::puts), &info) != 0);
  const Status status = Load(info.dli_fname);
  EXPECT_ERROR(status, StatusCode::kUnavailable, "another version of tfhvd");
  EXPECT_CONTAINS(status.message(), "Expected: " + std::to_string(kMpiApiVersion));
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
