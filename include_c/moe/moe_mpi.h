/* SPDX-License-Identifier: Apache-2.0
 *
 * libmoe over MPI: a communicator for moe_dist_create made of an MPI communicator.
 *
 *   #include <mpi.h>
 *   #include <moe/moe_mpi.h>
 *   MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
 *   moe_mpi_comm_create(MPI_COMM_WORLD, NULL, 0, &comm, &err);
 *
 * This library is built once for each MPI and links it; libmoe itself knows no MPI. pkg-config: libmoe-mpi-openmpi,
 * libmoe-mpi-mpich. MPI_Init and MPI_Finalize are the program's: destroy what uses a communicator before MPI_Finalize.
 * After MOE_ERR_COMM do not call MPI_Finalize, which may wait for ever: save what you need, then MPI_Abort or _exit.
 */
#ifndef MOE_MOE_MPI_H_
#define MOE_MOE_MPI_H_

#include <moe/moe.h>

#ifdef __cplusplus
extern "C" {
#endif

/* one declaration per line: */
/* clang-format off */

/** A communicator of the ranks of an MPI communicator, given by its Fortran handle: MPI_Comm_c2f() in C, comm.py2f()
 *  of mpi4py. So callers need no mpi.h. MPI itself may end the process for a number that is no handle. The communicator
 *  is duplicated: messages of the program are never mixed with those of libmoe. Options are those of moe_comm_create;
 *  timeout_ms also ends the wait for the ranks that must call this. Collective over the communicator. The thread that
 *  calls this, and every collective function of moe.h with it, is the main thread of MPI unless MPI was initialised
 *  with MPI_THREAD_SERIALIZED or more. moe_comm_destroy is collective, too, unless the communicator is poisoned.
 *  Open MPI reports a failed exchange to the error handler of MPI_COMM_WORLD. So each finished exchange replaces that
 *  handler for an instant: no other thread may set it then, and an error of another thread's call on MPI_COMM_WORLD may
 *  be returned to it instead of handled.
 *  Statuses: common, INVALID_CONFIG; STATE: MPI is not initialised or already finalised, or this thread may not call
 *  it; VERSION: the process runs another MPI than this library was built for; UNSUPPORTED: an intercommunicator;
 *  COMM: MPI failed, or ranks did not come in time. [any] */
MOE_API MOE_MUST_CHECK moe_status MOE_CALL moe_mpi_comm_create_f(int32_t fortran_handle, const char* options_json, size_t options_len, moe_comm** out, moe_error** err);
/** The MPI that this library was built for, such as "Open MPI v4.1.4". Static. [any] */
MOE_API const char* MOE_CALL moe_mpi_built_for(void);

/* clang-format on */

#ifdef MPI_VERSION /* mpi.h was included before */
/** The same from an MPI_Comm. */
static inline moe_status moe_mpi_comm_create(MPI_Comm comm, const char* options_json, size_t options_len,
                                             moe_comm** out, moe_error** err) {
  return moe_mpi_comm_create_f((int32_t)MPI_Comm_c2f(comm), options_json, options_len, out, err);
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* MOE_MOE_MPI_H_ */
