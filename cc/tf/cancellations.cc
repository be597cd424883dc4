#include "cc/tf/cancellations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"

namespace tfhvd {
namespace {

using tensorflow::CancellationManager;

// Keeps a Cancellations in a device's ResourceMgr.
class Holder : public tensorflow::ResourceBase {
 public:
  std::string DebugString() const override { return "tfhvd's cancellations"; }

  const std::shared_ptr<Cancellations> held = std::make_shared<Cancellations>();
};

}  // namespace

absl::Status Cancellations::Of(tensorflow::OpKernelConstruction* ctx,
                               std::shared_ptr<Cancellations>* found) {
  tensorflow::ResourceMgr* const manager = ctx->resource_manager();
  tensorflow::core::RefCountPtr<Holder> holder;
  Holder* created = nullptr;
  TF_RETURN_IF_ERROR(manager->LookupOrCreate<Holder>(
      manager->default_container(), "tfhvd_cancellations", &created, [](Holder** made) {
        *made = new Holder();
        return absl::OkStatus();
      }));
  holder.reset(created);
  *found = holder->held;
  return absl::OkStatus();
}

bool Cancellations::Join(CancellationManager* manager, std::shared_ptr<Member> member) {
  const MutexLock lock(&mutex_);
  for (Group& group : groups_) {
    if (group.manager != manager) continue;
    Add(&group, std::move(member));
    return true;
  }
  Group group;
  group.id = ++last_id_;
  group.manager = manager;
  group.token = manager->get_cancellation_token();
  // TensorFlow may call the callback at once, on another thread: it waits for the lock.
  const auto cancel = [self = shared_from_this(), id = group.id] { self->CancelGroup(id); };
  if (!manager->RegisterCallback(group.token, cancel)) return false;
  Add(&group, std::move(member));
  groups_.push_back(std::move(group));
  return true;
}

void Cancellations::Leave(Member* member) {
  const MutexLock lock(&mutex_);
  if (member->group_ == 0) return;
  const auto group = Find(member->group_);
  std::vector<std::shared_ptr<Member>>& members = group->members;
  members.back()->index_ = member->index_;
  std::swap(members[member->index_], members.back());
  member->group_ = 0;
  members.pop_back();
  if (!members.empty()) return;
  // If the callback is already running, it finds no group.
  group->manager->TryDeregisterCallback(group->token);
  groups_.erase(group);
}

void Cancellations::CancelGroup(uint64_t id) {
  std::vector<std::shared_ptr<Member>> members;
  {
    const MutexLock lock(&mutex_);
    const auto group = Find(id);
    if (group == groups_.end()) return;
    members = std::move(group->members);
    for (const std::shared_ptr<Member>& member : members) member->group_ = 0;
    groups_.erase(group);
  }
  for (const std::shared_ptr<Member>& member : members) member->OnCancelled();
}

std::vector<Cancellations::Group>::iterator Cancellations::Find(uint64_t id) {
  return std::find_if(groups_.begin(), groups_.end(), [id](const Group& g) { return g.id == id; });
}

void Cancellations::Add(Group* group, std::shared_ptr<Member> member) {
  member->group_ = group->id;
  member->index_ = group->members.size();
  group->members.push_back(std::move(member));
}

}  // namespace tfhvd
