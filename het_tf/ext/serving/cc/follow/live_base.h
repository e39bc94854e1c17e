// What a live directory is of: the serving files of one export.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "het_tf/ext/serving/cc/serve/serve_file.h"

namespace het::follow {

using Base = std::vector<std::shared_ptr<const serve::ServeFile>>;

// NotFound, DataLoss: see ServeFile::Open.
Result<Base> OpenBase(const std::vector<std::string>& files);
// Differs between exports: it covers the checksums of their headers.
uint64_t BaseChecksum(const Base& base);

// "rows-000-17.live": file `number` of a table.
std::string TableFileName(size_t table, uint64_t number);
// Returns the number in such a name; 0: it is another file's.
uint64_t TableFileNumber(const std::string& name);

constexpr char kControlName[] = "control";

// What errors say of a file that a follower writes.
constexpr MappedFile::Kind LiveKind(const char* name) {
  return {name,
          "a follower writes it: look at its log",
          "restart the follower: it makes the live files anew",
          "restart the follower with the het_tf that serves",
          Code::kDataLoss,
          Code::kDataLoss};
}

}  // namespace het::follow
