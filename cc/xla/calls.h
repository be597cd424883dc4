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
//   tfhvd_find    looks which gradients are not finite (on the host alone)
//     attributes  numbers, dtypes: of the gradients; most: values of each; 0: all
//     operands    what was found before, then the gradients
//     results     what is found then, this rank's vote (flow/finite_vote.h), and the gradients,
//                 untouched, in place
//   tfhvd_note    takes note of whether a step's gradients are finite (not on GPUs, where that
//                 would have to wait for the numbers)
//     attributes  gradients: see request_text.h
//     operands    what this rank has found, what the ranks have voted (flow/finite_vote.h)
//     results     a number (s64) that says nothing
#pragma once

namespace tfhvd {

constexpr char kBeginCall[] = "tfhvd_begin";
constexpr char kStartCall[] = "tfhvd_start";
constexpr char kDoneCall[] = "tfhvd_done";
constexpr char kFindCall[] = "tfhvd_find";
constexpr char kNoteCall[] = "tfhvd_note";

}  // namespace tfhvd
