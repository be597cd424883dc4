// The calls that collectives become in a compiled function: what lowering.cc writes, and
// handlers.cc reads.
//
//   tfhvd_begin   once in each computation, before the others
//     results     the number of this execution of it (s64)
//   tfhvd_start   begins a collective and returns at once
//     attributes  request: see request_text.h; anonymous
//     operands    the tensors, then the number that tfhvd_begin gave, then what must have happened
//     results     the tensors' results, then the collective's number (s64). An allreduce or
//     broadcast writes in
//                 place: result i is operand i.
//   tfhvd_done    waits for several
//     attributes  results, pending: how many of either there are
//     operands    the starts' results, their numbers, and whatever must exist or have happened
//     results     the first operands, in place, then a token (s64) that says it is over; what
//                 comes after that is handed on untouched, in place
#pragma once

namespace tfhvd {

constexpr char kBeginCall[] = "tfhvd_begin";
constexpr char kStartCall[] = "tfhvd_start";
constexpr char kDoneCall[] = "tfhvd_done";

}  // namespace tfhvd
