// The module's own declarations of the server's module API: only what the module uses.
//
// A module does not link against the server. The server passes OnLoad a context whose first word is a
// function that finds every other API function by its name, `RedisModule_X`; Valkey knows the same names. The
// struct `redis` holds the functions; LoadRedisApi() fills it once, and it is read-only afterwards:
//
//   redis.ReplyWithLongLong(ctx, 7);
//
// To use one more function, add its line to HET_REDIS_API with the signature of the API reference.
#pragma once

#include <cstddef>
#include <cstdint>

// The server's opaque types, in the global namespace as in every module.
struct RedisModuleCtx;
struct RedisModuleKey;
struct RedisModuleString;
struct RedisModuleCallReply;
struct RedisModuleIO;
struct RedisModuleType;
struct RedisModuleDigest;
struct RedisModuleInfoCtx;
struct RedisModuleUser;
using RedisModuleTimerID = uint64_t;

namespace het::module {

constexpr int kOk = 0;
constexpr int kErr = 1;
constexpr int kApiVersion = 1;

// OpenKey
constexpr int kRead = 1 << 0;
constexpr int kWrite = 1 << 1;
constexpr int kKeyTypeEmpty = 0;

// ACLCheckKeyPermissions
constexpr int kKeyAccess = 1 << 4;
constexpr int kKeyUpdate = 1 << 5;
constexpr int kKeyInsert = 1 << 6;
constexpr int kKeyDelete = 1 << 7;

constexpr int kReplyString = 0;
constexpr int kReplyArray = 3;

// GetContextFlags
constexpr int kCtxPrimary = 1 << 2;
constexpr int kCtxEvicts = 1 << 9;        // `maxmemory` is set, and the policy may delete keys
constexpr int kCtxOutOfMemory = 1 << 10;  // `maxmemory` is used up
constexpr int kCtxReplicated = 1 << 12;   // the command came from the primary
constexpr int kCtxLoading = 1 << 13;      // the command comes from the append-only file

// SetModuleOptions: IsIOError reports a short read while loading; otherwise the process would end.
constexpr int kHandleIoErrors = 1 << 0;

// RegisterNumericConfig
constexpr unsigned kConfigDefault = 0;
constexpr unsigned kConfigMemory = 1 << 7;  // "64mb"

using CommandFn = int (*)(RedisModuleCtx* ctx, RedisModuleString** argv, int argc);
using TimerFn = void (*)(RedisModuleCtx* ctx, void* data);
using GetNumberFn = long long (*)(const char* name, void* data);
using SetNumberFn = int (*)(const char* name, long long value, void* data, RedisModuleString** error);
using ApplyConfigFn = int (*)(RedisModuleCtx* ctx, void* data, RedisModuleString** error);
using InfoFn = void (*)(RedisModuleInfoCtx* ctx, int for_crash_report);

// RedisModuleTypeMethods, version 3, which every server since 6.2 understands. Null: unsupported.
struct TypeMethods {
  uint64_t version = 3;
  void* (*rdb_load)(RedisModuleIO* io, int encoding_version) = nullptr;
  void (*rdb_save)(RedisModuleIO* io, void* value) = nullptr;
  void (*aof_rewrite)(RedisModuleIO* io, RedisModuleString* key, void* value) = nullptr;
  size_t (*mem_usage)(const void* value) = nullptr;
  void (*digest)(RedisModuleDigest* digest, void* value) = nullptr;
  void (*free)(void* value) = nullptr;
  int (*aux_load)(RedisModuleIO* io, int encoding_version, int when) = nullptr;
  void (*aux_save)(RedisModuleIO* io, int when) = nullptr;
  int aux_save_triggers = 0;
  size_t (*free_effort)(RedisModuleString* key, const void* value) = nullptr;
  void (*unlink)(RedisModuleString* key, const void* value) = nullptr;
  void* (*copy)(RedisModuleString* from, RedisModuleString* to, const void* value) = nullptr;
  int (*defrag)(void* ctx, RedisModuleString* key, void** value) = nullptr;
};

struct ServerEvent {
  uint64_t id;
  uint64_t data_version;
};
constexpr ServerEvent kConfigEvent = {16, 1};
using ServerEventFn = void (*)(RedisModuleCtx* ctx, ServerEvent event, uint64_t subevent, void* data);

// F(result, name, arguments)
#define HET_REDIS_API(F)                                                                                   \
  F(void, SetModuleAttribs, (RedisModuleCtx*, const char* name, int version, int api_version))             \
  F(int, IsModuleNameBusy, (const char* name))                                                             \
  F(void, SetModuleOptions, (RedisModuleCtx*, int options))                                                \
  F(int, CreateCommand,                                                                                    \
    (RedisModuleCtx*, const char* name, CommandFn, const char* flags, int first, int last, int step))      \
  F(int, GetContextFlags, (RedisModuleCtx*))                                                               \
  F(unsigned long long, GetClientId, (RedisModuleCtx*))                                                    \
  F(RedisModuleString*, GetClientUserNameById, (RedisModuleCtx*, uint64_t client))                         \
  F(RedisModuleUser*, GetModuleUserFromUserName, (RedisModuleString*))                                     \
  F(void, FreeModuleUser, (RedisModuleUser*))                                                              \
  F(int, ACLCheckKeyPermissions, (RedisModuleUser*, RedisModuleString * key, int flags))                   \
  F(void*, Alloc, (size_t bytes))                                                                          \
  F(void, Free, (void*))                                                                                   \
  F(void*, OpenKey, (RedisModuleCtx*, RedisModuleString * key, int mode))                                  \
  F(void, CloseKey, (RedisModuleKey*))                                                                     \
  F(int, KeyType, (RedisModuleKey*))                                                                       \
  F(RedisModuleType*, CreateDataType,                                                                      \
    (RedisModuleCtx*, const char* name, int encoding_version, TypeMethods*))                               \
  F(RedisModuleType*, ModuleTypeGetType, (RedisModuleKey*))                                                \
  F(void*, ModuleTypeGetValue, (RedisModuleKey*))                                                          \
  F(int, ModuleTypeSetValue, (RedisModuleKey*, RedisModuleType*, void* value))                             \
  F(const char*, StringPtrLen, (const RedisModuleString*, size_t* length))                                 \
  F(int, WrongArity, (RedisModuleCtx*))                                                                    \
  F(int, ReplyWithError, (RedisModuleCtx*, const char* text))                                              \
  F(int, ReplyWithSimpleString, (RedisModuleCtx*, const char* text))                                       \
  F(int, ReplyWithLongLong, (RedisModuleCtx*, long long))                                                  \
  F(int, ReplyWithStringBuffer, (RedisModuleCtx*, const char* bytes, size_t length))                       \
  F(int, ReplyWithArray, (RedisModuleCtx*, long length))                                                   \
  F(int, ReplyWithMap, (RedisModuleCtx*, long length))                                                     \
  F(int, Replicate, (RedisModuleCtx*, const char* command, const char* format, ...))                       \
  F(int, ReplicateVerbatim, (RedisModuleCtx*))                                                             \
  F(RedisModuleCallReply*, Call, (RedisModuleCtx*, const char* command, const char* format, ...))          \
  F(int, CallReplyType, (RedisModuleCallReply*))                                                           \
  F(size_t, CallReplyLength, (RedisModuleCallReply*))                                                      \
  F(RedisModuleCallReply*, CallReplyArrayElement, (RedisModuleCallReply*, size_t index))                   \
  F(const char*, CallReplyStringPtr, (RedisModuleCallReply*, size_t * length))                             \
  F(void, FreeCallReply, (RedisModuleCallReply*))                                                          \
  F(void, SaveStringBuffer, (RedisModuleIO*, const char* bytes, size_t length))                            \
  F(char*, LoadStringBuffer, (RedisModuleIO*, size_t * length))                                            \
  F(int, IsIOError, (RedisModuleIO*))                                                                      \
  F(void, EmitAOF, (RedisModuleIO*, const char* command, const char* format, ...))                         \
  F(void, LogIOError, (RedisModuleIO*, const char* level, const char* format, ...))                        \
  F(void, DigestAddStringBuffer, (RedisModuleDigest*, const char* bytes, size_t length))                   \
  F(void, DigestAddLongLong, (RedisModuleDigest*, long long))                                              \
  F(void, DigestEndSequence, (RedisModuleDigest*))                                                         \
  F(int, RegisterInfoFunc, (RedisModuleCtx*, InfoFn))                                                      \
  F(int, InfoAddSection, (RedisModuleInfoCtx*, const char* name))                                          \
  F(int, InfoAddFieldCString, (RedisModuleInfoCtx*, const char* field, const char* value))                 \
  F(int, InfoAddFieldULongLong, (RedisModuleInfoCtx*, const char* field, unsigned long long))              \
  F(int, GetSelectedDb, (RedisModuleCtx*))                                                                 \
  F(int, SelectDb, (RedisModuleCtx*, int db))                                                              \
  F(const RedisModuleString*, GetKeyNameFromIO, (RedisModuleIO*))                                          \
  F(int, GetDbIdFromIO, (RedisModuleIO*))                                                                  \
  F(RedisModuleString*, CreateString, (RedisModuleCtx*, const char* bytes, size_t length))                 \
  F(void, FreeString, (RedisModuleCtx*, RedisModuleString*))                                               \
  F(RedisModuleTimerID, CreateTimer, (RedisModuleCtx*, long long milliseconds, TimerFn, void* data))       \
  F(int, AvoidReplicaTraffic, ())                                                                          \
  F(int, SubscribeToServerEvent, (RedisModuleCtx*, ServerEvent, ServerEventFn))                            \
  F(int, RegisterNumericConfig,                                                                            \
    (RedisModuleCtx*, const char* name, long long normal, unsigned flags, long long least, long long most, \
     GetNumberFn, SetNumberFn, ApplyConfigFn, void* data))                                                 \
  F(int, LoadConfigs, (RedisModuleCtx*))

struct RedisApi {
#define HET_DECLARE(result, name, arguments) result(*name) arguments = nullptr;
  HET_REDIS_API(HET_DECLARE)
#undef HET_DECLARE
  // Writes to the server's log; looked up first.
  void (*Log)(RedisModuleCtx*, const char* level, const char* format, ...) = nullptr;
  // Null if the server does not have it.
  void* (*TryAlloc)(size_t bytes) = nullptr;
};

extern RedisApi redis;

// Fills `redis`. Returns false, after one line in the server's log, if a function is missing.
bool LoadRedisApi(RedisModuleCtx* ctx);

}  // namespace het::module
