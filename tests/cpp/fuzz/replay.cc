// Runs a target on its seeds and on every input of a pack, once each. A pack is one file: u32 size | input,
// ...
//
//   NAME_replay PACK                  the test
//   NAME_replay --seeds FOLDER        the seeds as files, for libFuzzer to begin with
//   NAME_replay --unpack PACK FOLDER
//   NAME_replay --pack FOLDER PACK
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/cpp/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) het::fuzz::Fail(("cannot read " + path.string()).c_str());
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<std::string> ReadPack(const fs::path& path) {
  const std::string bytes = ReadFile(path);
  std::vector<std::string> inputs;
  for (size_t at = 0; at < bytes.size();) {
    uint32_t size = 0;
    if (bytes.size() - at < sizeof(size)) het::fuzz::Fail("the pack is cut off");
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    if (bytes.size() - at < size) het::fuzz::Fail("the pack is cut off");
    inputs.push_back(bytes.substr(at, size));
    at += size;
  }
  return inputs;
}

void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void WriteFolder(const fs::path& folder, const std::vector<std::string>& inputs) {
  fs::create_directories(folder);
  for (size_t i = 0; i < inputs.size(); ++i) WriteFile(folder / std::to_string(i), inputs[i]);
}

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> seeds;
  for (const het::Bytes& seed : het::fuzz::Seeds()) seeds.emplace_back(seed.begin(), seed.end());
  if (seeds.empty()) het::fuzz::Fail("no seeds");
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--seeds" && argc == 3) {
    WriteFolder(argv[2], seeds);
  } else if (command == "--unpack" && argc == 4) {
    WriteFolder(argv[3], ReadPack(argv[2]));
  } else if (command == "--pack" && argc == 4) {
    std::vector<std::string> inputs;
    for (const auto& entry : fs::directory_iterator(argv[2])) inputs.push_back(ReadFile(entry.path()));
    std::sort(inputs.begin(), inputs.end());
    std::string pack;
    for (const std::string& input : inputs) {
      const auto size = static_cast<uint32_t>(input.size());
      pack.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(input);
    }
    WriteFile(argv[3], pack);
  } else if (argc == 2) {
    const std::vector<std::string> kept = ReadPack(command);
    if (kept.empty()) het::fuzz::Fail("the pack holds no input");
    for (const std::string& input : seeds) Run(input);
    for (const std::string& input : kept) Run(input);
    std::printf("%zu seeds and %zu kept inputs\n", seeds.size(), kept.size());
  } else {
    het::fuzz::Fail("give one argument: a pack");
  }
  return 0;
}
