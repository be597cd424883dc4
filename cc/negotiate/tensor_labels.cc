#include "cc/negotiate/tensor_labels.h"

#include <string>

namespace tfhvd {

Status WithLabels(const Status& verdict, const Request& own) {
  std::string text = verdict.message();
  for (size_t t = 0; t < own.labels.size(); ++t) {
    const std::string number = "tensor " + std::to_string(t) + " of the group";
    const std::string label = " (" + own.labels[t] + ")";
    for (size_t at = text.find(number); at != std::string::npos;
         at = text.find(number, at + number.size() + label.size())) {
      text.insert(at + number.size(), label);
    }
  }
  return Status(verdict.code(), text);
}

}  // namespace tfhvd
