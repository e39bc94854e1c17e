// Commands to servers, for Python: a C ABI like that of management.h, with the same answers.
//
// Commands and answers cross it in the protocol of Redis (RESP 2), so that words may have any bytes and
// answers any depth; an error within the answers is `!SIZE\r\nTEXT\r\n`, as a string with another first
// letter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "het_tf/core/base/c_text.h"
#include "het_tf/ext/ps/client/address.h"

extern "C" {

// Gives the password of a new connection; called by any thread, for as long as the process lives. It writes
// at most `room` bytes; its size, or minus the size of a message.
typedef int64_t (*HetPassword)(char* out, size_t room);

// *server: the servers of an address (ext/ps/client/address.h), for one thread at a time. It connects when it
// is asked, and again after a connection has ended. `password`: null, or gives it, and the address has none.
// InvalidArgument: it is no address.
HET_EXPORT int HetServerOpen(const char* address, HetPassword password, void** server);
HET_EXPORT void HetServerClose(void* server);
// Sends commands and waits for their answers, at most `seconds` after the last byte that moved. *answers is
// valid until the server's next call.
// key null: to the first server of the address, whatever it is; SIGINT ends the wait.
// Else one command, to the server that owns this key: RedisCluster::Ask, so an error is the call's.
HET_EXPORT int HetServerAsk(void* server, const char* key, const uint8_t* commands, size_t size,
                            double seconds, const uint8_t** answers, size_t* answers_size);

}  // extern "C"

namespace het {

// ParseServerAddress with a password of Python.
Result<ServerAddress> ReadAddress(const char* address, HetPassword password);

}  // namespace het
