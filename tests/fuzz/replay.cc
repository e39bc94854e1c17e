// Runs a target on its seeds and on every input of a pack, once each. A pack is
// one file: u32 size | input, ...
//
//   fuzz_replay TARGET PACK                  the test
//   fuzz_replay TARGET --seeds FOLDER        writes the seeds as files
//   fuzz_replay TARGET --unpack PACK FOLDER
//   fuzz_replay TARGET --pack FOLDER PACK
//   fuzz_replay TARGET --mutate PACK COUNT     without clang: runs changes of
//                                              both; TARGET.input is the last
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) het::fuzz::Fail(("cannot read " + path.string()).c_str());
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<std::string> ReadPack(const fs::path &path) {
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

void WriteFile(const fs::path &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void WriteFolder(const fs::path &folder, const std::vector<std::string> &inputs) {
  fs::create_directories(folder);
  for (size_t i = 0; i < inputs.size(); ++i) WriteFile(folder / std::to_string(i), inputs[i]);
}

void WritePack(const fs::path &folder, const fs::path &path) {
  std::vector<std::string> inputs;
  for (const auto &entry : fs::directory_iterator(folder)) inputs.push_back(ReadFile(entry.path()));
  std::sort(inputs.begin(), inputs.end());
  std::string pack;
  for (const std::string &input : inputs) {
    const auto size = static_cast<uint32_t>(input.size());
    pack.append(reinterpret_cast<const char *>(&size), sizeof(size)).append(input);
  }
  WriteFile(path, pack);
}

void Replay(const het::fuzz::Target &target, const std::vector<std::string> &seeds,
            const std::vector<std::string> &kept) {
  if (seeds.empty()) het::fuzz::Fail("no seeds");
  if (kept.empty()) het::fuzz::Fail("the pack holds no input");
  for (const auto *inputs : {&seeds, &kept}) {
    for (const std::string &input : *inputs) {
      target.run(reinterpret_cast<const uint8_t *>(input.data()), input.size());
    }
  }
  std::printf("%s: %zu seeds and %zu kept inputs\n", target.name, seeds.size(), kept.size());
}

// Runs inputs with a few numbers written over, into or out of them, some cut off, some with another behind.
void Mutate(const het::fuzz::Target &target, const std::vector<std::string> &inputs, size_t count) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i < count; ++i) {
    std::string input = inputs[random() % inputs.size()];
    for (size_t changes = random() % 4; changes > 0; --changes) {
      const uint64_t number = random() >> random() % 64;
      const size_t old = random() % 9;
      input.replace(random() % (input.size() + 1), old, reinterpret_cast<const char *>(&number),
                    random() % 2 == 0 ? old : random() % 9);
    }
    if (random() % 4 == 0) input.resize(random() % (input.size() + 1));
    if (random() % 2 == 0) input += inputs[random() % inputs.size()];
    WriteFile(std::string(target.name) + ".input", input);
    target.run(reinterpret_cast<const uint8_t *>(input.data()), input.size());
  }
  std::printf("%s: %zu changed inputs\n", target.name, count);
}

const het::fuzz::Target &Find(const std::string &name) {
  for (const het::fuzz::Target &target : het::fuzz::Targets()) {
    if (target.name == name) return target;
  }
  het::fuzz::Fail(("no target is called " + name).c_str());
}

}  // namespace

int main(int argc, char **argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) het::fuzz::Fail("give a target and a pack");
  const het::fuzz::Target &target = Find(arguments[0]);
  std::vector<std::string> seeds;
  for (const het::Bytes &seed : target.seeds()) seeds.emplace_back(seed.begin(), seed.end());
  const std::string &command = arguments[1];
  if (command == "--seeds" && argc == 4) {
    WriteFolder(arguments[2], seeds);
  } else if (command == "--unpack" && argc == 5) {
    WriteFolder(arguments[3], ReadPack(arguments[2]));
  } else if (command == "--pack" && argc == 5) {
    WritePack(arguments[2], arguments[3]);
  } else if (command == "--mutate" && argc == 5) {
    for (const std::string &input : ReadPack(arguments[2])) seeds.push_back(input);
    Mutate(target, seeds, std::stoul(arguments[3]));
  } else if (argc == 3) {
    Replay(target, seeds, ReadPack(command));
  } else {
    het::fuzz::Fail("give a target and a pack");
  }
  return 0;
}
