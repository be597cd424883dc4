// MpiApi: the few calls of MPI that tfhvd makes, as a table of function pointers.
//
// The table is in a separate library, libtfhvd_mpi.so. It is compiled against the MPI of this
// machine from mpi_api.cc, the only file that includes mpi.h. The core opens it when a job of MPI
// starts, so the core itself needs no MPI and works with any. A binary wheel contains the library
// once for each binary interface; it is opened after an MPI with that interface. No type of MPI
// appears here.
//
// Functions return 0 or the MPI's error code (ErrorText describes it); no error ends the process,
// except errors of MPI itself before it has begun (InitThread). After each call MPI_COMM_WORLD has
// the program's error handler again, unless InitThread has begun MPI. Threads: as the level of
// QueryThread allows.
#pragma once

#include <cstdint>

namespace tfhvd {

// Incremented with every change of the table.
constexpr int kMpiApiVersion = 4;

using MpiHandle = uintptr_t;  // a communicator or request of MPI

constexpr int kMpiAnySource = -1;
constexpr int kMpiThreadSerialized = 2;
constexpr int kMpiThreadMultiple = 3;

struct MpiApi {
  int version;  // kMpiApiVersion of the library; stays the first field

  // Texts live as long as the process. "Open MPI v5.0.11", "MPICH 4.2.0".
  const char* (*Library)();
  const char* (*LibraryFile)();  // the path of the libmpi in use, "" if unknown
  void (*ErrorText)(int error, char* text, int size);

  int (*Initialized)(int* flag);
  int (*Finalized)(int* flag);
  int (*InitThread)(int* provided);  // asks for kMpiThreadMultiple
  int (*QueryThread)(int* provided);
  int (*Finalize)();

  // In MPI_COMM_WORLD.
  int (*Rank)(int* rank);
  int (*Size)(int* size);

  // Opens a communicator that only tfhvd uses, of `count` ranks of MPI_COMM_WORLD in that order, or
  // of all if count is 0. Collective over them. `tag` distinguishes it from a communicator of the
  // same ranks that is opened at the same time.
  int (*OpenComm)(const int* ranks, int count, int tag, MpiHandle* comm);
  int (*FreeComm)(MpiHandle* comm);
  int (*LargestTag)(MpiHandle comm, int* tag);

  // Messages are bytes.
  int (*Isend)(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request);
  // Done when the receiver has begun to take the message.
  int (*Issend)(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request);
  int (*Irecv)(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request);
  int (*Test)(MpiHandle* request, int* done);  // a request that is done is gone
  int (*Cancel)(MpiHandle* request);           // then Test until it is done
  // Looks for a message from rank `source`, or kMpiAnySource.
  int (*Iprobe)(int source, int tag, MpiHandle comm, int* found, int* from, int* bytes);
};

}  // namespace tfhvd

// The export of libtfhvd_mpi.so.
extern "C" const tfhvd::MpiApi* tfhvd_mpi_api();
