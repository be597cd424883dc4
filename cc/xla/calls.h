// The calls that collectives become in a compiled function: lowering.cc writes them, and
// handlers.cc executes them.
//
//   tfhvd_begin   once in each computation, before the others
//     results     the number of this execution (s64)
//   tfhvd_start   begins a collective and returns at once
//     attributes  request: see request_text.h; anonymous
//     operands    the tensors, then the number from tfhvd_begin, then whatever must have happened
//     results     the tensors' results, then the collective's number (s64). An allreduce or
//                 broadcast writes in place: result i is operand i.
//   tfhvd_done    waits for several collectives
//     attributes  results, pending: the number of each
//     operands    the starts' results, their numbers, and whatever must exist or have happened
//     results     the first operands, in place, then a token (s64) that shows the end; the operands
//                 after that are passed on unchanged, in place
//   tfhvd_find    finds the gradients that are not finite (only on the host)
//     attributes  numbers, dtypes: of the gradients; most: values of each; 0: all
//     operands    the earlier finding, then the gradients
//     results     the new finding, this rank's vote (flow/finite_vote.h), and the gradients,
//                 unchanged, in place
//   tfhvd_note    records whether a step's gradients are finite (not on GPUs, where that would have
//                 to wait for the numbers)
//     attributes  gradients: see request_text.h
//     operands    this rank's finding, the ranks' common vote (flow/finite_vote.h)
//     results     a number (s64) without meaning
#pragma once

namespace tfhvd {

constexpr char kBeginCall[] = "tfhvd_begin";
constexpr char kStartCall[] = "tfhvd_start";
constexpr char kDoneCall[] = "tfhvd_done";
constexpr char kFindCall[] = "tfhvd_find";
constexpr char kNoteCall[] = "tfhvd_note";

}  // namespace tfhvd
