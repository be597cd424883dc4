#include "cc/process/agree_on.h"

#include <future>
#include <memory>
#include <utility>

#include "cc/flow/entry.h"
#include "cc/process/process.h"

namespace tfhvd {

Status AgreeOn(Request request, int64_t* number) {
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return NotInitialized();
  const auto done = std::make_shared<std::promise<Status>>();
  Entry entry;
  request.key.name = request.kind == Collective::kJoin ? "tfhvd.join" : "tfhvd.process_sets";
  entry.request = std::move(request);
  entry.anonymous = true;
  entry.EditExtras()->number = [number](int64_t value) { *number = value; };
  entry.done = [done](const Status& status) { done->set_value(status); };
  SubmitToJob(engine, std::move(entry));
  return done->get_future().get();
}

}  // namespace tfhvd
