#include "tests/testing/redis/redis_server.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <utility>

#include "tests/testing/temp_folder.h"

namespace het::testing {
namespace {

std::string Setting(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

std::string RedisServer::Missing() {
  if (!std::filesystem::exists(Module())) return Module() + " is not built";
  if (std::system(("command -v " + Program() + " >/dev/null 2>&1").c_str()) != 0) {
    return Program() + " is not installed (apt-get install redis-server)";
  }
  return "";
}

std::string RedisServer::Program() { return Setting("HET_TEST_SERVER", "redis-server"); }
std::string RedisServer::Module() { return Setting("HET_TEST_MODULE", HET_REDIS_MODULE); }

int RedisServer::FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

RedisServer::RedisServer(Arguments settings) : settings_(std::move(settings)) {
  char path[] = "/tmp/het_redis_XXXXXX";
  dir_ = mkdtemp(path);
  Start();
}

RedisServer::~RedisServer() {
  Kill();
  // A saving child may still write for a moment.
  for (int tries = 0; tries < 100 && std::filesystem::exists(dir_); ++tries) {
    std::error_code error;
    std::filesystem::remove_all(dir_, error);
    if (error) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string RedisServer::Log() const { return ReadFile(dir_ + "/log"); }

std::string RedisServer::LogPath(const std::string& part) const {
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/appendonlydir")) {
    if (entry.path().string().find(part) != std::string::npos) return entry.path().string();
  }
  return "";
}

bool RedisServer::Start() {
  Arguments args = settings_;
  args.insert(args.begin(),
              {Program(), "--port", "0", "--unixsocket", dir_ + "/socket", "--dir", dir_, "--logfile",
               dir_ + "/log", "--save", "", "--loadmodule", Module(), "--enable-debug-command", "yes"});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  for (int tries = 0; tries < 30000; ++tries) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return false;
    }
    connection_ = std::make_unique<RedisConnection>(address().nodes[0], address());
    if (Command({"PING"}).text == "PONG") return true;
    connection_.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

void RedisServer::Kill() {
  connection_.reset();
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  std::filesystem::remove(dir_ + "/socket");
}

bool RedisServer::Restart() {
  Kill();
  return Start();
}

RedisReply RedisServer::Command(const Arguments& args) {
  const auto reply = up() ? connection_->Ask(args, 300) : Status(Code::kUnavailable, "it is down");
  return reply.ok() ? RedisReply(reply.value()) : RedisReply();
}

int64_t RedisServer::Info(const std::string& section, const std::string& field) {
  std::istringstream lines(Command({"INFO", section}).text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, field.size() + 1, field + ":") == 0)
      return std::atoll(line.c_str() + field.size() + 1);
  }
  return -1;
}

std::string RedisServer::Stat(const std::string& field, const std::string& key) {
  const RedisReply reply = Command({"HET.STAT", key});
  for (size_t i = 0; i + 1 < reply.elements.size(); i += 2) {
    const RedisReply& value = reply.elements[i + 1];
    if (reply.elements[i].text != field) continue;
    return value.kind == het::RedisReply::kInteger ? std::to_string(value.integer) : value.text;
  }
  return "no " + field + ": " + reply.text;
}

std::vector<RedisReply> RedisServer::Tables(const std::string& key) {
  const RedisReply page = Command({"HET.STAT", key, "TABLES"});
  EXPECT_EQ(page.elements.size(), 2u) << page.text;
  if (page.elements.size() != 2) return {};
  EXPECT_EQ(page.elements[0].text, "0");
  return page.elements[1].elements;
}

std::string RedisServer::Digest(const std::string& key) {
  const RedisReply reply = Command({"DEBUG", "DIGEST-VALUE", key});
  return reply.elements.size() == 1 ? reply.elements[0].text : "no digest: " + reply.text;
}

bool RedisServer::Await(const std::string& section, const std::string& line) {
  return Eventually([&] { return Command({"INFO", section}).text.find(line) != std::string::npos; });
}

bool RedisServer::AwaitCopy(RedisServer* replica) {
  if (!replica->Await("replication", "master_link_status:up")) return false;
  const int64_t until = Info("replication", "master_repl_offset");
  return Eventually([&] { return replica->Info("replication", "slave_repl_offset") >= until; });
}

}  // namespace het::testing
