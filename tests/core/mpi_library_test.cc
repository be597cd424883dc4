// Which MPI is tried, and where, in which order. Needs no MPI.
#include "cc/backends/mpi/mpi_library.h"

#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Texts = std::vector<std::string>;

Texts FilesIn(const Texts& folders, MpiAbi launched) {
  Texts files;
  for (const MpiLibrary& library : MpiLibrariesIn(folders, launched)) files.push_back(library.file);
  return files;
}

TEST(WithoutALauncherANearerMpiComesFirst) {
  const Texts expected = {"/env/libmpi.so.40", "/env/libmpi.so.12", "/env/libmpich.so.12",
                          "libmpi.so.40",      "libmpi.so.12",      "libmpich.so.12"};
  EXPECT_TRUE(FilesIn({"/env", ""}, MpiAbi::kUnknown) == expected);
}

TEST(TheLaunchersMpiComesFirstWhereverItIs) {
  const Texts expected = {"/env/libmpi.so.12", "/env/libmpich.so.12", "libmpi.so.12",
                          "libmpich.so.12",    "/env/libmpi.so.40",   "libmpi.so.40"};
  EXPECT_TRUE(FilesIn({"/env", ""}, MpiAbi::kMpich) == expected);
  EXPECT_EQ(FilesIn({"/env", ""}, MpiAbi::kOpenMpi).at(1), std::string("libmpi.so.40"));
}

TEST(EachLibraryHasTheInterfaceOfItsName) {
  for (const MpiLibrary& library : MpiLibrariesIn({"/a", ""}, MpiAbi::kUnknown)) {
    const bool forty = library.file.find(".so.40") != std::string::npos;
    EXPECT_TRUE(library.abi == (forty ? MpiAbi::kOpenMpi : MpiAbi::kMpich));
  }
}

TEST(TheNearestLauncherSaysWhereItsLibrariesAre) {
  const Texts folders =
      FoldersOfLauncher({"/opt/env/bin/python3.12", "/bin/bash", "/opt/mpi/bin/prterun",
                         "/usr/bin/orterun", "/sbin/init"});
  EXPECT_EQ(folders.at(0), std::string("/opt/mpi/lib"));
  const Texts system = FoldersOfLauncher({"/usr/bin/orted"});
  EXPECT_EQ(system.at(2), std::string("/usr/lib/x86_64-linux-gnu"));
}

TEST(WithoutALauncherThereIsNoFolder) {
  EXPECT_TRUE(FoldersOfLauncher({}).empty());
  // The path of somebody else's process cannot be read.
  EXPECT_TRUE(FoldersOfLauncher({"", "mpirun", "/mpirun", "/usr/bin/python3"}).empty());
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
