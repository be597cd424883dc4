#include "cc/negotiate/outbox.h"

#include <algorithm>

namespace tfhvd {

Agreement* Outbox::Of(int rank) {
  std::unique_ptr<Agreement>& own = own_[static_cast<size_t>(rank)];
  if (own == nullptr) own = std::make_unique<Agreement>(common_);
  return own.get();
}

std::vector<std::pair<int, SharedAgreement>> Outbox::Take(uint64_t sequence) {
  common_.sequence = sequence;
  const bool anything = !common_.empty();
  const auto common = std::make_shared<Agreement>(std::exchange(common_, {}));
  SharedAgreement confirmed;  // the common agreement for ranks that must answer
  std::vector<std::pair<int, SharedAgreement>> out;
  for (size_t r = 0; r < own_.size(); ++r) {
    const std::unique_ptr<Agreement> own = std::move(own_[r]);
    SharedAgreement agreement = anything ? SharedAgreement(common) : nullptr;
    if (own != nullptr) {
      own->sequence = sequence;
      own->confirm = own->confirm || confirm_[r];
      agreement = own->empty() ? nullptr : std::make_shared<const Agreement>(std::move(*own));
    } else if (confirm_[r]) {
      if (confirmed == nullptr) {
        Agreement copy = *common;
        copy.confirm = true;
        confirmed = std::make_shared<const Agreement>(std::move(copy));
      }
      agreement = confirmed;
    }
    if (agreement != nullptr) out.emplace_back(static_cast<int>(r), std::move(agreement));
  }
  std::fill(confirm_.begin(), confirm_.end(), false);
  return out;
}

}  // namespace tfhvd
