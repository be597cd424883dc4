// The suite that every Communicator passes: each collective with every type, operation, size and
// root, in and out of place, compared bit for bit with what every rank computes for itself from
// all ranks' inputs (they are pseudo-random and seeded, so each rank can make them all).
//
//   Conformance suite(&communicator);   // on every rank of the communicator
//   suite.RunAll();
//   Conformance(&communicator, 1, {0, 0, 1}).RunAll();   // reduces by hosts: ranks 0 and 1 share
//   one CheckAbort(&another_communicator);  // ends its use
//
// Failures are reported through tests/core/testing.h. When a call fails, the suite stops on this
// rank: the caller has to see to it that the others do not wait for it forever.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/types.h"
#include "cc/comm/communicator.h"
#include "cc/numeric/arithmetic.h"
#include "cc/numeric/compat.h"
#include "tests/core/conformance_data.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

class Conformance {
 public:
  // Where `exact` is false, reductions of floats may take the ranks in any order and round at every
  // step.
  explicit Conformance(Communicator* comm, uint64_t seed = 1, bool exact = true)
      : comm_(*comm), seed_(seed), exact_(exact) {}

  // The communicator combines each host's ranks first; `hosts` says the host of each rank. Where
  // floats are wide, it rounds no host's sum to 16 bits.
  Conformance& ByHosts(std::vector<int> hosts, bool wide_floats = false) {
    hosts_ = std::move(hosts);
    wide_floats_ = wide_floats;
    return *this;
  }

  // The bytes of the largest tensors.
  Conformance& UpTo(int64_t bytes) {
    large_ = bytes;
    return *this;
  }

  void RunAll() {
    using Check = void (Conformance::*)();
    const Check checks[] = {&Conformance::CheckBarrier,       &Conformance::CheckAllReduce,
                            &Conformance::CheckAllGather,     &Conformance::CheckBroadcast,
                            &Conformance::CheckReduceScatter, &Conformance::CheckAllToAll,
                            &Conformance::CheckStarted,       &Conformance::CheckMixture,
                            &Conformance::CheckSpecial};
    for (const Check check : checks) {
      if (!stopped_) (this->*check)();
    }
  }

  bool stopped() const { return stopped_; }

  void CheckBarrier() {
    for (int i = 0; i < 20 && !stopped_; ++i) Ok(comm_.Barrier(), "barrier");
  }

  // Every type with every operation where it is cheap; large ones once per type and operation.
  void CheckAllReduce() {
    for (const DType dtype : Types()) {
      for (const Reduction& reduction : Reductions(dtype)) {
        for (const int64_t count : {0, 1, 7, 1031, 4097}) {
          for (const bool in_place : {false, true}) AllReduce(count, dtype, reduction, in_place);
        }
      }
      const Reduction plain{dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum, 1.0, 1.0};
      for (const bool in_place : {false, true}) {
        AllReduce((1 << 20) / ItemSize(dtype) + 5, dtype, plain, in_place);
      }
    }
    for (const Reduction& reduction : Reductions(DType::kFloat32)) {
      AllReduce(100003, DType::kFloat32, reduction, true);
    }
    for (const bool in_place : {false, true}) {
      AllReduce(large_ / 4 + 3, DType::kFloat32, {ReduceOp::kAverage, 1.0, 1.0}, in_place);
    }
    AllReduce(large_ / 2 + 1, DType::kBFloat16, {ReduceOp::kSum, 1.0, 1.0}, true);
  }

  void CheckAllGather() {
    for (const int64_t most :
         {int64_t{1}, int64_t{3}, int64_t{1031}, int64_t{70001}, large_ / size()}) {
      for (const bool in_place : {false, true}) {
        AllGather(Even(most), in_place);
        AllGather(Uneven(most), in_place);
      }
    }
    AllGather(Even(0), false);
    for (int only = 0; only < size(); ++only) {  // one rank alone has something
      std::vector<int64_t> bytes = Even(0);
      bytes[static_cast<size_t>(only)] = 5003;
      AllGather(bytes, only % 2 == 0);
    }
  }

  void CheckBroadcast() {
    for (int root = 0; root < size(); ++root) {
      for (const int64_t bytes : {0, 1, 1031, 4097, 70001, (1 << 20) + 1}) Broadcast(bytes, root);
    }
    Broadcast(large_ + 5, size() - 1);
  }

  void CheckReduceScatter() {
    for (const DType dtype : Types()) {
      for (const Reduction& reduction : Reductions(dtype)) {
        for (const int64_t most : {0, 1, 1031}) {
          ReduceScatter(Even(most), dtype, reduction);
          ReduceScatter(Uneven(most), dtype, reduction);
        }
      }
    }
    const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
    for (const int64_t most : {int64_t{30011}, large_ / 4 / size()}) {
      ReduceScatter(Even(most), DType::kFloat32, sum);
      ReduceScatter(Uneven(most), DType::kFloat32, sum);
    }
  }

  void CheckAllToAll() {
    for (const int64_t most : {0, 1, 1031, 4097, 70001}) {
      AllToAll(most, false);
      AllToAll(most, true);
    }
    AllToAll(large_ / size(), true);
  }

  // Allreduces of which several are under way, with other collectives between such series.
  void CheckStarted() {
    Random random(seed_ * 31 + 7);  // the same on every rank
    for (int series = 0; series < 12 && !stopped_; ++series) {
      std::deque<Started> under_way;
      for (int64_t left = 1 + random.Below(9); left > 0 && !stopped_; --left) {
        const DType dtype = static_cast<DType>(random.Below(kNumRealDTypes));
        const ReduceOp op = dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum;
        const int64_t most = int64_t{1} << (4 + random.Below(17));
        const int64_t count = random.Below(std::min(most, large_ / 8));
        under_way.push_back(Start(count, dtype, {op, 1.0, 1.0}, random.Below(2) == 1));
        const bool pause =
            random.Below(3) == comm_.rank() % 3;  // one rank is later than the others
        if (pause) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        while (!stopped_ && static_cast<int64_t>(under_way.size()) > random.Below(5)) {
          Finish(&under_way);
        }
      }
      while (!stopped_ && !under_way.empty()) Finish(&under_way);
      Broadcast(1031, static_cast<int>(random.Below(size())));
    }
  }

  // Collectives of changing kinds and sizes, one right behind the other.
  void CheckMixture() {
    Random random(seed_ * 77 + 5);  // the same on every rank
    for (int i = 0; i < 200 && !stopped_; ++i) {
      const int64_t magnitude = int64_t{1} << random.Below(18);
      const int64_t n = random.Below(magnitude) + random.Below(3);
      const DType dtype = static_cast<DType>(random.Below(kNumRealDTypes));
      const std::vector<Reduction> reductions = Reductions(dtype);
      const Reduction& reduction =
          reductions[static_cast<size_t>(random.Below(static_cast<int64_t>(reductions.size())))];
      const bool in_place = random.Below(2) == 1;
      switch (random.Below(6)) {
        case 0:
          AllReduce(n, dtype, reduction, in_place);
          break;
        case 1:
          AllGather(Uneven(n), in_place);
          break;
        case 2:
          Broadcast(n, static_cast<int>(random.Below(size())));
          break;
        case 3:
          ReduceScatter(Uneven(n), dtype, reduction);
          break;
        case 4:
          AllToAll(n, true);
          break;
        default:
          Ok(comm_.Barrier(), "barrier");
      }
    }
  }

  // Denormals, NaN, zeros of both signs and infinities, where every other rank's thread flushes
  // denormals, as TensorFlow's do.
  void CheckSpecial() {
    if (!exact_) return;
    special_ = true;
    const compat::FloatMode before = compat::ReadFloatMode();
    if (comm_.rank() % 2 == 1) compat::WriteFloatMode(kFlushesDenormals);
    for (const DType dtype : Types()) {
      if (!IsFloat(dtype)) continue;
      for (const Reduction& reduction : Reductions(dtype)) {
        for (const int64_t count : {1, 7, 1031, 4097}) {
          for (const bool in_place : {false, true}) AllReduce(count, dtype, reduction, in_place);
        }
        ReduceScatter(Even(1031), dtype, reduction);
        ReduceScatter(Uneven(1031), dtype, reduction);
      }
      for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kMin}) {
        AllReduce((1 << 20) / ItemSize(dtype) + 5, dtype, {op, 1.0, 1.0}, false);
      }
    }
    compat::WriteFloatMode(before);
    special_ = false;
  }

  // Tensors of more than 2^31 bytes, of which each rank needs one.
  void CheckHuge() {
    const int64_t bytes = (int64_t{1} << 31) + 4099;
    const int root = size() - 1;
    Buffer buffer(bytes);
    FillPattern(&buffer, Step(comm_.rank()));
    int sum = 0;
    for (int r = 0; r < size(); ++r) sum += Step(r);
    const Reduction plain{ReduceOp::kSum, 1.0, 1.0};
    if (!Ok(comm_.AllReduce(buffer.data(), buffer.data(), bytes, DType::kUInt8, plain), "huge")) {
      return;
    }
    EXPECT_EQ(FirstOffPattern(buffer, sum), -1);
    EXPECT_TRUE(buffer.intact());
    if (comm_.rank() == root) FillPattern(&buffer, 77);
    if (!Ok(comm_.Broadcast(buffer.data(), bytes, root), "huge")) return;
    EXPECT_EQ(FirstOffPattern(buffer, 77), -1);
    EXPECT_TRUE(buffer.intact());
  }

 private:
  int size() const { return comm_.size(); }

  static std::vector<DType> Types() {
    if (kThreadSanitizer) return {DType::kBool, DType::kBFloat16, DType::kFloat32};
    std::vector<DType> all;
    for (int t = 0; t < kNumRealDTypes; ++t) {
      const DType dtype = static_cast<DType>(t);
      // To a communicator these are as int32 and int64 are; CheckMixture has them, too.
      if (dtype != DType::kUInt32 && dtype != DType::kUInt64) all.push_back(dtype);
    }
    return all;
  }

  static int Step(int rank) { return 2 * rank + 1; }

  static std::vector<Reduction> Reductions(DType dtype) {
    std::vector<Reduction> all;
    for (int o = 0; o < kNumReduceOps; ++o) all.push_back({static_cast<ReduceOp>(o), 1.0, 1.0});
    all.push_back({ReduceOp::kSum, 0.5, 3.0});
    all.push_back({ReduceOp::kAverage, 3.0, 0.25});
    all.push_back({ReduceOp::kMax, 1.0, 1.5});
    const auto refused = [&](const Reduction& r) { return !CheckReduction(dtype, r).ok(); };
    all.erase(std::remove_if(all.begin(), all.end(), refused), all.end());
    return all;
  }

  // Sizes for each rank, equal or between 0 and most.
  std::vector<int64_t> Even(int64_t most) const {
    return std::vector<int64_t>(static_cast<size_t>(size()), most);
  }
  std::vector<int64_t> Uneven(int64_t most) const {
    Random random(static_cast<uint64_t>(most) + seed_);
    std::vector<int64_t> sizes = Even(0);
    for (int64_t& n : sizes) n = random.Below(3) == 0 ? 0 : random.Below(most + 1);
    return sizes;
  }

  // A seed for rank's input of the current case.
  uint64_t InputSeed(int rank) const {
    return (seed_ * 1000003 + static_cast<uint64_t>(case_)) * 64 + static_cast<uint64_t>(rank);
  }

  std::vector<Buffer> Inputs(int64_t count, DType dtype, bool scaled) const {
    std::vector<Buffer> inputs;
    for (int r = 0; r < size(); ++r) {
      inputs.emplace_back(count * ItemSize(dtype));
      if (special_) {
        FillSpecial(&inputs.back(), dtype, InputSeed(r));
      } else {
        FillRandom(&inputs.back(), dtype, InputSeed(r), scaled);
      }
    }
    return inputs;
  }

  bool Ok(const Status& status, const std::string& what) {
    if (status.ok()) return true;
    Registry::Get().Fail(__FILE__, __LINE__, Where() + what + ": " + status.ToString());
    stopped_ = true;
    return false;
  }

  std::string Where() const {
    return "rank " + std::to_string(comm_.rank()) + " of " + std::to_string(size()) + ": ";
  }

  void Compare(const Buffer& got, const char* expected, int64_t bytes, const std::string& what) {
    if (!got.intact()) {
      Registry::Get().Fail(__FILE__, __LINE__, Where() + what + " wrote behind its output");
    }
    if (bytes == 0 || std::memcmp(got.data(), expected, static_cast<size_t>(bytes)) == 0) return;
    int64_t at = 0;
    while (got.data()[at] == expected[at]) ++at;
    Registry::Get().Fail(__FILE__, __LINE__,
                         Where() + what + ": first wrong byte " + std::to_string(at) + " of " +
                             std::to_string(bytes));
  }

  // Elements [begin, begin + count) of all inputs, reduced.
  void CompareReduced(const Buffer& got, const Buffer& expected, const std::vector<Buffer>& inputs,
                      int64_t begin, DType dtype, const Reduction& reduction,
                      const std::string& what) {
    if (exact_ || !IsFloat(dtype)) {
      return Compare(got, expected.data(), expected.bytes(), what);
    }
    Compare(got, got.data(), got.bytes(), what);  // its guard
    const bool sum = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAverage;
    const double factor = std::abs(reduction.prescale * reduction.postscale) /
                          (reduction.op == ReduceOp::kAverage ? size() : 1);
    const double steps = size() + 4;
    for (int64_t i = 0; i < expected.bytes() / ItemSize(dtype); ++i) {
      const double wanted = ValueAt(expected.data(), dtype, i);
      double magnitude = std::abs(wanted);
      for (const Buffer& input : inputs) {
        if (sum) magnitude += std::abs(ValueAt(input.data(), dtype, begin + i)) * factor;
      }
      const double smallest = dtype == DType::kFloat16 ? 0x1p-24 * (1 << size()) : 1e-38;
      const double allowed = steps * (Epsilon(dtype) * magnitude + smallest);
      const double value = ValueAt(got.data(), dtype, i);
      if (std::abs(value - wanted) <= allowed) continue;
      Registry::Get().Fail(__FILE__, __LINE__,
                           Where() + what + ": element " + std::to_string(i) + " is " +
                               std::to_string(value) + " and not " + std::to_string(wanted));
      return;
    }
  }

  static bool IsScaled(const Reduction& reduction) {
    return reduction.prescale != 1.0 || reduction.postscale != 1.0;
  }

  static std::string Describe(const char* kind, DType dtype, const Reduction& reduction) {
    return std::string(kind) + " " + DTypeName(dtype) + " " + ReduceOpName(reduction.op) +
           (IsScaled(reduction) ? " scaled" : "");
  }

  // The reduction of elements [begin, begin + count) of all inputs.
  Buffer Reduced(const std::vector<Buffer>& inputs, int64_t begin, int64_t count, DType dtype,
                 const Reduction& reduction) const {
    std::vector<const void*> in;
    for (const Buffer& input : inputs) in.push_back(input.data() + begin * ItemSize(dtype));
    if (!hosts_.empty()) return ReduceByHost(in, hosts_, count, dtype, reduction, wide_floats_);
    Buffer result(count * ItemSize(dtype));
    ReduceRanks(result.data(), in.data(), static_cast<int>(in.size()), count, dtype, reduction);
    return result;
  }

  void AllReduce(int64_t count, DType dtype, const Reduction& reduction, bool in_place) {
    if (stopped_) return;
    ++case_;
    std::vector<Buffer> inputs = Inputs(count, dtype, IsScaled(reduction));
    const Buffer expected = Reduced(inputs, 0, count, dtype, reduction);
    Buffer& in = inputs[static_cast<size_t>(comm_.rank())];
    const Buffer before = in;
    Buffer out(expected.bytes());
    Buffer& to = in_place ? in : out;
    const std::string what = Describe("allreduce", dtype, reduction) + " of " +
                             std::to_string(count) + (in_place ? " in place" : "");
    const std::vector<Buffer> originals = exact_ ? std::vector<Buffer>() : inputs;
    if (!Ok(comm_.AllReduce(in.data(), to.data(), count, dtype, reduction), what)) return;
    CompareReduced(to, expected, originals, 0, dtype, reduction, what);
    if (!in_place) Compare(in, before.data(), before.bytes(), what + " (its input)");
    if (comm_.takes_spans(before.bytes())) AllReduceSpans(before, expected, dtype, reduction, what);
  }

  // An allreduce that has been started.
  struct Started {
    std::vector<Buffer> inputs;
    Buffer expected{0};
    Buffer out{0};
    DType dtype = DType::kFloat32;
    Reduction reduction;
    bool in_place = false;
    Buffer before{0};  // this rank's input, which the result may take the place of
  };

  Started Start(int64_t count, DType dtype, const Reduction& reduction, bool in_place) {
    ++case_;
    Started started;
    started.inputs = Inputs(count, dtype, false);
    started.expected = Reduced(started.inputs, 0, count, dtype, reduction);
    started.out = Buffer(started.expected.bytes());
    started.dtype = dtype;
    started.reduction = reduction;
    started.in_place = in_place;
    Buffer& in = started.inputs[static_cast<size_t>(comm_.rank())];
    started.before = in;
    char* const to = in_place ? in.data() : started.out.data();
    (void)Ok(comm_.StartAllReduce(in.data(), to, count, dtype, reduction), "start");
    return started;
  }

  void Finish(std::deque<Started>* under_way) {
    Started started = std::move(under_way->front());
    under_way->pop_front();
    if (!Ok(comm_.FinishAllReduce(), "finish")) return;
    Buffer& in = started.inputs[static_cast<size_t>(comm_.rank())];
    const Buffer got = started.in_place ? in : started.out;
    in = started.before;
    CompareReduced(got, started.expected, started.inputs, 0, started.dtype, started.reduction,
                   Describe("started allreduce", started.dtype, started.reduction));
  }

  // An allreduce of values that lie in several places on some ranks, here and there in place.
  void AllReduceSpans(const Buffer& in, const Buffer& expected, DType dtype,
                      const Reduction& reduction, const std::string& what) {
    if (comm_.rank() % 3 == 2) {
      Buffer out(in.bytes());
      const int64_t count = in.bytes() / ItemSize(dtype);
      if (!Ok(comm_.AllReduce(in.data(), out.data(), count, dtype, reduction), what)) return;
      return Compare(out, expected.data(), expected.bytes(), what + " beside spans");
    }
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    std::vector<int64_t> begins;
    for (int64_t begin = 0, n = 0; begin < in.bytes(); ++n) {
      const int64_t wanted = (n % 5) * (n * n + comm_.rank()) * ItemSize(dtype);  // some have none
      const int64_t bytes = n < 40 ? std::min(wanted, in.bytes() - begin) : in.bytes() - begin;
      inputs.emplace_back(bytes);
      std::copy(in.data() + begin, in.data() + begin + bytes, inputs.back().data());
      outputs.emplace_back(bytes);
      begins.push_back(begin);
      begin += bytes;
    }
    std::vector<Span> spans;
    for (size_t i = 0; i < inputs.size(); ++i) {
      void* const out = i % 4 == 0 ? inputs[i].data() : outputs[i].data();
      spans.push_back({inputs[i].data(), out, inputs[i].bytes()});
    }
    if (!Ok(comm_.AllReduceSpans(spans, dtype, reduction), what + " of spans")) return;
    for (size_t i = 0; i < spans.size(); ++i) {
      const Buffer& out = i % 4 == 0 ? inputs[i] : outputs[i];
      Compare(out, expected.data() + begins[i], out.bytes(), what + " of spans");
    }
  }

  // In place: `in` and `out` are the same address.
  void AllGather(const std::vector<int64_t>& bytes, bool in_place) {
    if (stopped_) return;
    ++case_;
    Buffer out(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
    Buffer expected(out.bytes());
    Buffer in(0);
    char* place = expected.data();
    for (int r = 0; r < size(); ++r) {
      Buffer block(bytes[static_cast<size_t>(r)]);
      FillRandom(&block, DType::kUInt8, InputSeed(r), false);
      std::copy(block.data(), block.data() + block.bytes(), place);
      place += block.bytes();
      if (r == comm_.rank()) in = block;
    }
    if (in_place) std::copy(in.data(), in.data() + in.bytes(), out.data());
    const std::string what = "allgather " + ShapeString(bytes) + (in_place ? " in place" : "");
    if (!Ok(comm_.AllGather(in_place ? out.data() : in.data(), out.data(), bytes), what)) return;
    Compare(out, expected.data(), expected.bytes(), what);
  }

  void Broadcast(int64_t bytes, int root) {
    if (stopped_) return;
    ++case_;
    Buffer expected(bytes);
    FillRandom(&expected, DType::kUInt8, InputSeed(root), false);
    Buffer buffer(bytes);
    if (comm_.rank() == root) buffer = expected;
    const std::string what =
        "broadcast of " + std::to_string(bytes) + " from " + std::to_string(root);
    if (!Ok(comm_.Broadcast(buffer.data(), bytes, root), what)) return;
    Compare(buffer, expected.data(), bytes, what);
  }

  void ReduceScatter(const std::vector<int64_t>& counts, DType dtype, const Reduction& reduction) {
    if (stopped_) return;
    ++case_;
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const std::vector<Buffer> inputs = Inputs(total, dtype, IsScaled(reduction));
    const int64_t begin =
        std::accumulate(counts.begin(), counts.begin() + comm_.rank(), int64_t{0});
    const int64_t count = counts[static_cast<size_t>(comm_.rank())];
    const Buffer expected = Reduced(inputs, begin, count, dtype, reduction);
    const Buffer& in = inputs[static_cast<size_t>(comm_.rank())];
    const Buffer before = in;
    Buffer out(expected.bytes());
    const std::string what =
        Describe("reducescatter", dtype, reduction) + " of " + ShapeString(counts);
    if (!Ok(comm_.ReduceScatter(in.data(), out.data(), counts, dtype, reduction), what)) return;
    CompareReduced(out, expected, inputs, begin, dtype, reduction, what);
    Compare(in, before.data(), before.bytes(), what + " (its input)");
  }

  // What rank `from` sends to rank `to`.
  Buffer Block(int64_t most, bool uneven, int from, int to) const {
    Random random(InputSeed(from) * 131 + static_cast<uint64_t>(to));
    const bool empty = uneven && random.Below(3) == 0;
    Buffer block(empty ? 0 : uneven ? random.Below(most + 1) : most);
    FillRandom(&block, DType::kUInt8, random.Next(), false);
    return block;
  }

  void AllToAll(int64_t most, bool uneven) {
    if (stopped_) return;
    ++case_;
    std::vector<int64_t> send, receive;
    std::string in, expected;
    for (int r = 0; r < size(); ++r) {
      const Buffer mine = Block(most, uneven, comm_.rank(), r);
      const Buffer theirs = Block(most, uneven, r, comm_.rank());
      send.push_back(mine.bytes());
      receive.push_back(theirs.bytes());
      in.append(mine.data(), static_cast<size_t>(mine.bytes()));
      expected.append(theirs.data(), static_cast<size_t>(theirs.bytes()));
    }
    Buffer out(static_cast<int64_t>(expected.size()));
    const std::string what = "alltoall " + ShapeString(send);
    if (!Ok(comm_.AllToAll(in.data(), send, out.data(), receive), what)) return;
    Compare(out, expected.data(), out.bytes(), what);
  }

  Communicator& comm_;
  const uint64_t seed_;
  const bool exact_;
  std::vector<int> hosts_;  // by rank; empty: ranks are combined one by one
  bool wide_floats_ = false;
  int64_t large_ = (kThreadSanitizer ? 3 : 9) << 20;
  int case_ = 0;
  bool special_ = false;  // inputs are what CheckSpecial says
  bool stopped_ = false;
};

// A call that waits for rank 0 returns when another thread aborts it, and so do later calls. On
// every rank of a communicator that is not used afterwards.
inline void CheckAbort(Communicator* comm) {
  const Status why = Status::Aborted("the conformance suite says so");
  EXPECT_OK(comm->Barrier());
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm->Abort(why);
  });
  if (comm->rank() != 0) {
    std::vector<float> data(300000, 1.0f);
    EXPECT_EQ(comm->AllReduce(data.data(), data.data(), static_cast<int64_t>(data.size()),
                              DType::kFloat32, Reduction()),
              why);
  }
  other.join();
  EXPECT_EQ(comm->Barrier(), why);
  char byte = 0;
  EXPECT_EQ(comm->Broadcast(&byte, 1, 0), why);
}

}  // namespace testing
}  // namespace tfhvd
