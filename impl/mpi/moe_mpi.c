/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI as the table of functions that moe_comm_create takes. Built once for each MPI, from this file alone: it uses
 * what MPI 3.1 has. Exchanges are MPI_Ialltoallv and its relatives on a duplicate of the caller's communicator, with a
 * datatype that is a row, so that counts stay below 2^31 where bytes do not. Nothing here waits: deadlines are the
 * core's, but for the duplicate itself.
 */
#include <mpi.h>
/* after mpi.h */
#include <moe/moe_mpi.h>

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(OPEN_MPI)
#define BUILT_FOR "Open MPI"
#elif defined(MPICH_VERSION)
#define BUILT_FOR "MPICH"
#else
#error "neither Open MPI nor MPICH: how does its MPI_Get_library_version begin?"
#endif

enum { kRowTypes = 8, kDefaultTimeoutMs = 60000 };

/* An operation under way. MPI reads its lists until it is done. */
struct moe_comm_op {
  MPI_Request request;
  struct moe_comm_op* next; /* of those that are free */
  int lists[];              /* 4 * size: counts and displacements, sent and received */
};

struct row_type {
  uint64_t bytes;
  MPI_Datatype type;
  uint64_t used; /* when; 0: never */
};

struct transport {
  MPI_Comm comm;
  int rank, size, broken;
  int64_t running; /* operations */
  uint64_t clock;
  struct row_type types[kRowTypes];
  moe_comm_op* free;
};

/* --- errors ------------------------------------------------------------------------------------------------------- */

static moe_status fail(moe_error** err, moe_status status, const char* message) {
  if (err != NULL) *err = moe_error_create(status, message, MOE_NUL_TERMINATED);
  return status;
}

/* MPI's numbers differ between implementations and versions; its text does not get lost. */
static moe_status mpi_failed(moe_error** err, const char* function, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "", message[sizeof text + 64];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "error %d", code);
  snprintf(message, sizeof message, "%s: %s", function, text);
  return fail(err, MOE_ERR_COMM, message);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static moe_comm_op* take_op(struct transport* t) {
  moe_comm_op* op = t->free;
  if (op == NULL) return malloc(sizeof *op + 4 * (size_t)t->size * sizeof(int));
  t->free = op->next;
  return op;
}

static void give_back(struct transport* t, moe_comm_op* op) {
  op->next = t->free;
  t->free = op;
}

/* The datatype of a row. The one that was not used for longest makes room; MPI keeps it for operations that use it. */
static int row_type_of(struct transport* t, uint64_t bytes, MPI_Datatype* out) {
  struct row_type* oldest = &t->types[0];
  for (int i = 0; i < kRowTypes; ++i) {
    struct row_type* r = &t->types[i];
    if (r->used != 0 && r->bytes == bytes) {
      r->used = ++t->clock;
      *out = r->type;
      return MPI_SUCCESS;
    }
    if (r->used < oldest->used) oldest = r;
  }
  MPI_Datatype made = MPI_DATATYPE_NULL;
  int code = MPI_Type_contiguous((int)bytes, MPI_BYTE, &made);
  if (code != MPI_SUCCESS) return code;
  if ((code = MPI_Type_commit(&made)) != MPI_SUCCESS) return code;
  if (oldest->used != 0) MPI_Type_free(&oldest->type);
  *oldest = (struct row_type){bytes, made, ++t->clock};
  *out = made;
  return MPI_SUCCESS;
}

static int narrow(const int64_t* from, int count, int* to) {
  int fits = 1;
  for (int i = 0; i < count; ++i) {
    fits &= from[i] >= 0 && from[i] <= INT_MAX;
    to[i] = fits ? (int)from[i] : 0;
  }
  return fits;
}

/* What every start does first. */
static moe_status prepare(struct transport* t, uint64_t row_bytes, MPI_Datatype* type, moe_comm_op** op,
                          moe_error** err) {
  *op = NULL;
  if (row_bytes > INT_MAX) return fail(err, MOE_ERR_COMM, "MPI: a row of 2^31 bytes or more");
  const int code = row_type_of(t, row_bytes, type);
  if (code != MPI_SUCCESS) return mpi_failed(err, "MPI_Type_contiguous", code);
  *op = take_op(t);
  return *op == NULL ? fail(err, MOE_ERR_OUT_OF_MEMORY, "MPI: no memory for an operation") : MOE_OK;
}

static moe_status started(struct transport* t, moe_comm_op** op, const char* function, int code, moe_error** err) {
  if (code == MPI_SUCCESS) {
    ++t->running;
    return MOE_OK;
  }
  give_back(t, *op);
  *op = NULL;
  t->broken = 1;
  return mpi_failed(err, function, code);
}

static moe_status too_many_rows(struct transport* t, moe_comm_op** op, moe_error** err) {
  give_back(t, *op);
  *op = NULL;
  t->broken = 1;
  return fail(err, MOE_ERR_COMM, "MPI: a count or displacement of 2^31 rows or more, or a negative one");
}

static moe_status MOE_CALL alltoallv_start(void* user, uint64_t row_bytes, const void* send, const int64_t* send_counts,
                                           const int64_t* send_displs, void* recv, const int64_t* recv_counts,
                                           const int64_t* recv_displs, moe_comm_op** op, moe_error** err) {
  struct transport* t = user;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  const moe_status status = prepare(t, row_bytes, &row, op, err);
  if (status != MOE_OK) return t->broken = 1, status;
  int* const lists = (*op)->lists;
  const int n = t->size;
  if (!(narrow(send_counts, n, lists) & narrow(send_displs, n, lists + n) & narrow(recv_counts, n, lists + 2 * n) &
        narrow(recv_displs, n, lists + 3 * n)))
    return too_many_rows(t, op, err);
  return started(
      t, op, "MPI_Ialltoallv",
      MPI_Ialltoallv(send, lists, lists + n, row, recv, lists + 2 * n, lists + 3 * n, row, t->comm, &(*op)->request),
      err);
}

static moe_status MOE_CALL allgatherv_start(void* user, uint64_t row_bytes, const void* send, int64_t send_count,
                                            void* recv, const int64_t* recv_counts, const int64_t* recv_displs,
                                            moe_comm_op** op, moe_error** err) {
  struct transport* t = user;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  const moe_status status = prepare(t, row_bytes, &row, op, err);
  if (status != MOE_OK) return t->broken = 1, status;
  int *const lists = (*op)->lists, count = 0;
  const int n = t->size;
  if (!(narrow(&send_count, 1, &count) & narrow(recv_counts, n, lists) & narrow(recv_displs, n, lists + n)))
    return too_many_rows(t, op, err);
  return started(t, op, "MPI_Iallgatherv",
                 MPI_Iallgatherv(send, count, row, recv, lists, lists + n, row, t->comm, &(*op)->request), err);
}

static moe_status MOE_CALL alltoall_start(void* user, uint64_t row_bytes, const void* send, void* recv,
                                          moe_comm_op** op, moe_error** err) {
  struct transport* t = user;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  const moe_status status = prepare(t, row_bytes, &row, op, err);
  if (status != MOE_OK) return t->broken = 1, status;
  return started(t, op, "MPI_Ialltoall", MPI_Ialltoall(send, 1, row, recv, 1, row, t->comm, &(*op)->request), err);
}

/* MPI_Test. Where it finds that a collective operation has failed, Open MPI 4 calls the error handler of MPI_COMM_WORLD
 * (ompi/errhandler/errhandler_invoke.c), which usually ends the process: for that one call it is another. Which version
 * runs is known at run time only, and where it is not needed this does no harm. */
static int test_request(MPI_Request* request, int* flag) {
#if defined(OPEN_MPI)
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* else a thread would keep another's handler */
  int code = MPI_Request_get_status(*request, flag, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS || !*flag) return code;
  MPI_Errhandler of_world = MPI_ERRHANDLER_NULL;
  pthread_mutex_lock(&one_at_a_time);
  if ((code = MPI_Comm_get_errhandler(MPI_COMM_WORLD, &of_world)) == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Test(request, flag, MPI_STATUS_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, of_world);
    MPI_Errhandler_free(&of_world);
  }
  pthread_mutex_unlock(&one_at_a_time);
  return code;
#else
  return MPI_Test(request, flag, MPI_STATUS_IGNORE);
#endif
}

static moe_status MOE_CALL test(void* user, moe_comm_op* op, int32_t* done, moe_error** err) {
  struct transport* t = user;
  int flag = 0;
  const int code = test_request(&op->request, &flag);
  *done = flag != 0;
  if (code == MPI_SUCCESS && !flag) return MOE_OK;
  --t->running;
  give_back(t, op);
  if (code == MPI_SUCCESS) return MOE_OK;
  t->broken = 1;
  return mpi_failed(err, "MPI_Test", code);
}

/* MPI's progress is made by the tests, and on a machine with more ranks than cores the others want to run. */
static void rest(int32_t microseconds) {
  const struct timespec time = {0, 1000L * (microseconds < 1000 ? microseconds : 1000)};
  nanosleep(&time, NULL);
}

static void MOE_CALL wait_hint(void* user, int32_t microseconds) {
  (void)user;
  rest(microseconds);
}

static void MOE_CALL end_job(void* user, int32_t code) {
  struct transport* t = user;
  MPI_Abort(t->comm, code);
}

/* With an operation under way, or after a failure, the end of the communicator would wait for ever: it is left. */
static void MOE_CALL destroy(void* user) {
  struct transport* t = user;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (t->running != 0) return; /* MPI may still read the lists of an operation */
  for (int i = 0; i < kRowTypes && !finalized; ++i)
    if (t->types[i].used != 0) MPI_Type_free(&t->types[i].type);
  if (!finalized && !t->broken) MPI_Comm_free(&t->comm);
  while (t->free != NULL) {
    moe_comm_op* op = t->free;
    t->free = op->next;
    free(op);
  }
  free(t);
}

static moe_comm_ops table_of(struct transport* t) {
  moe_comm_ops ops;
  memset(&ops, 0, sizeof ops);
  ops.struct_size = sizeof ops;
  ops.rank = t->rank;
  ops.size = t->size;
  ops.user = t;
  ops.alltoallv_start = alltoallv_start;
  ops.test = test;
  ops.allgatherv_start = allgatherv_start;
  ops.alltoall_start = alltoall_start;
  ops.wait_hint = wait_hint;
  ops.abort = end_job;
  ops.destroy = destroy;
  return ops;
}

/* --- creation ----------------------------------------------------------------------------------------------------- */

/* The process may run another MPI than this library was compiled for: nothing but this call is safe then. Its text can
 * be longer than MPI_MAX_LIBRARY_VERSION_STRING of the other one says. */
static moe_status check_library(moe_error** err) {
  static const size_t kBytes = 65536;
  char* text = calloc(1, kBytes);
  if (text == NULL) return fail(err, MOE_ERR_OUT_OF_MEMORY, "MPI: no memory");
  int length = 0;
  moe_status status = MOE_OK;
  MPI_Get_library_version(text, &length);
  if (strncmp(text, BUILT_FOR, sizeof BUILT_FOR - 1) != 0) {
    char message[512];
    text[strcspn(text, "\n")] = 0;
    snprintf(message, sizeof message,
             "MPI: this library was built for %s, the process runs %.200s; use libmoe_mpi of that one",
             moe_mpi_built_for(), text);
    status = fail(err, MOE_ERR_VERSION, message);
  }
  free(text);
  return status;
}

static moe_status check_state(moe_error** err) {
  int initialized = 0, finalized = 0, level = 0, main_thread = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized) return fail(err, MOE_ERR_STATE, "MPI: not initialised; call MPI_Init_thread before");
  if (finalized) return fail(err, MOE_ERR_STATE, "MPI: already finalised");
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&main_thread);
  if (level < MPI_THREAD_SERIALIZED && !main_thread)
    return fail(err, MOE_ERR_STATE,
                "MPI: this thread did not initialise MPI; initialise it with MPI_THREAD_SERIALIZED, or call from its "
                "main thread");
  return MOE_OK;
}

/* The options as moe_comm_create reads them: refused here, before the other ranks are asked. */
static moe_status check_options(const char* json, size_t length, moe_error** err) {
  struct transport alone = {.comm = MPI_COMM_NULL, .size = 1};
  moe_comm_ops ops = table_of(&alone);
  ops.destroy = NULL;
  moe_comm* comm = NULL;
  const moe_status status = moe_comm_create(&ops, json, length, &comm, err);
  moe_comm_destroy(comm);
  return status;
}

/* "timeout_ms" of options that were checked. */
static int64_t timeout_of(const char* json, size_t length) {
  static const char kKey[] = "\"timeout_ms\"";
  if (json == NULL) return kDefaultTimeoutMs;
  if (length == MOE_NUL_TERMINATED) length = strlen(json);
  for (size_t i = 0; i + sizeof kKey - 1 < length; ++i) {
    if (memcmp(json + i, kKey, sizeof kKey - 1) != 0) continue;
    char digits[24] = "";
    size_t n = 0;
    for (i += sizeof kKey - 1; i < length && strchr(": \t\r\n", json[i]) != NULL; ++i) {
    }
    for (; i < length && json[i] >= '0' && json[i] <= '9' && n + 1 < sizeof digits; ++i) digits[n++] = json[i];
    return n == 0 ? kDefaultTimeoutMs : strtoll(digits, NULL, 10);
  }
  return kDefaultTimeoutMs;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* MPI_Comm_dup would hang where a rank does not come. */
static moe_status duplicate(MPI_Comm from, int64_t timeout_ms, MPI_Comm* to, moe_error** err) {
  MPI_Request request;
  int code = MPI_Comm_idup(from, to, &request), done = 0;
  if (code != MPI_SUCCESS) return mpi_failed(err, "MPI_Comm_idup", code);
  for (const int64_t begin = now_ms(); !done; rest(50)) {
    if ((code = test_request(&request, &done)) != MPI_SUCCESS) return mpi_failed(err, "MPI_Test", code);
    if (!done && now_ms() - begin >= timeout_ms) {
      char message[128];
      snprintf(message, sizeof message, "MPI: not all ranks called moe_mpi_comm_create within %lld ms",
               (long long)timeout_ms);
      return fail(err, MOE_ERR_COMM, message);
    }
  }
  code = MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN);
  return code == MPI_SUCCESS ? MOE_OK : mpi_failed(err, "MPI_Comm_set_errhandler", code);
}

static moe_status create(int32_t handle, const char* json, size_t length, moe_comm** out, moe_error** err) {
  moe_status status = check_library(err);
  if (status == MOE_OK) status = check_state(err);
  if (status == MOE_OK) status = check_options(json, length, err);
  if (status != MOE_OK) return status;
  const MPI_Comm given = MPI_Comm_f2c((MPI_Fint)handle);
  if (given == MPI_COMM_NULL) return fail(err, MOE_ERR_INVALID_ARGUMENT, "fortran_handle: no communicator");
  int inter = 0;
  MPI_Comm_test_inter(given, &inter);
  if (inter) return fail(err, MOE_ERR_UNSUPPORTED, "fortran_handle: an intercommunicator");
  struct transport* t = calloc(1, sizeof *t);
  /* Also without memory this rank takes part, so that the others do not wait. */
  static MPI_Comm unused;
  MPI_Comm* const own = t != NULL ? &t->comm : &unused;
  status = duplicate(given, timeout_of(json, length), own, err);
  if (status != MOE_OK) return status; /* MPI may still write *own: t is left */
  if (t == NULL) {
    MPI_Comm_free(own);
    return fail(err, MOE_ERR_OUT_OF_MEMORY, "MPI: no memory");
  }
  MPI_Comm_rank(t->comm, &t->rank);
  MPI_Comm_size(t->comm, &t->size);
  const moe_comm_ops ops = table_of(t);
  return moe_comm_create(&ops, json, length, out, err); /* takes t, also when it fails */
}

moe_status MOE_CALL moe_mpi_comm_create_f(int32_t fortran_handle, const char* options_json, size_t options_len,
                                          moe_comm** out, moe_error** err) {
  if (err != NULL) *err = NULL;
  if (out == NULL) return fail(err, MOE_ERR_INVALID_ARGUMENT, "out: must not be NULL");
  *out = NULL;
  return create(fortran_handle, options_json, options_len, out, err);
}

const char* MOE_CALL moe_mpi_built_for(void) {
#if defined(OPEN_MPI)
#define TEXT_OF(x) #x
#define VERSION_OF(a, b, c) "Open MPI v" TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
  return VERSION_OF(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#else
  return "MPICH " MPICH_VERSION;
#endif
}
