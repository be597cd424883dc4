// What only this rank can find wrong with an entry. What no other rank counts on is an error here;
// of the rest they must hear: it is left in the request.
#pragma once

#include "cc/base/status.h"
#include "cc/flow/entry.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

Status CheckEntry(const ProcessSetTable& sets, int rank, Entry* entry);

}  // namespace tfhvd
