/* Changes what a process sends by MPI: functions that stand before those of the library, as MPI's profiling interface
 * provides. libmoe_mpi of this process then calls these. What goes to itself alone stays. Copies are left behind: MPI
 * reads them until an exchange ends. */
enum { kAsSent, kHeaderBits, kAnyByte, kShorter, kLost, kSpoils };
#define VISIBLE __attribute__((visibility("default")))
static int spoiling, spoiled; /* how; how many messages */
static uint64_t spoil_state = 1;

static uint64_t spoil_number(uint64_t below) {
  spoil_state ^= spoil_state << 13, spoil_state ^= spoil_state >> 7, spoil_state ^= spoil_state << 17;
  return spoil_state % below;
}
static void* copy_of(const void* from, size_t bytes) {
  void* copy = malloc(bytes + 1);
  return bytes == 0 ? copy : memcpy(copy, from, bytes);
}
static size_t bytes_of(MPI_Datatype type) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  return (size_t)bytes;
}
/* One message to one rank: rows of `row` bytes, 16 for headers and for summaries of configs. */
static void spoil(unsigned char* message, size_t row, int* rows) {
  const size_t bytes = row * (size_t)*rows;
  if (bytes == 0) return;
  const int header = spoiling == kHeaderBits && row == 16, any = spoiling == kAnyByte;
  const int length = (spoiling == kShorter || spoiling == kLost) && spoil_number(4) == 0;
  if (header) message[spoil_number(bytes)] ^= (unsigned char)(1u << spoil_number(8));
  if (any) message[spoil_number(bytes)] = (unsigned char)spoil_number(256);
  if (length) *rows = spoiling == kLost ? 0 : (int)spoil_number((uint64_t)*rows);
  spoiled += header || any || length;
}

VISIBLE int MPI_Ialltoallv(const void* send, const int counts[], const int places[], MPI_Datatype type, void* recv,
                           const int recv_counts[], const int recv_places[], MPI_Datatype recv_type, MPI_Comm comm,
                           MPI_Request* request) {
  if (spoiling == kAsSent)
    return PMPI_Ialltoallv(send, counts, places, type, recv, recv_counts, recv_places, recv_type, comm, request);
  int ranks = 0, end = 0;
  PMPI_Comm_size(comm, &ranks);
  for (int r = 0; r < ranks; ++r) end = places[r] + counts[r] > end ? places[r] + counts[r] : end;
  const size_t row = bytes_of(type);
  unsigned char* sent = copy_of(send, row * (size_t)end);
  int* lengths = copy_of(counts, sizeof *counts * (size_t)ranks);
  for (int r = 0; r < ranks; ++r)
    if (r != rank) spoil(sent + row * (size_t)places[r], row, &lengths[r]);
  return PMPI_Ialltoallv(sent, lengths, places, type, recv, recv_counts, recv_places, recv_type, comm, request);
}

VISIBLE int MPI_Ialltoall(const void* send, int count, MPI_Datatype type, void* recv, int recv_count,
                          MPI_Datatype recv_type, MPI_Comm comm, MPI_Request* request) {
  if (spoiling == kAsSent) return PMPI_Ialltoall(send, count, type, recv, recv_count, recv_type, comm, request);
  int ranks = 0, length = count; /* of all messages, the one to itself too */
  PMPI_Comm_size(comm, &ranks);
  const size_t row = bytes_of(type);
  unsigned char* sent = copy_of(send, row * (size_t)count * (size_t)ranks);
  for (int r = 0; r < ranks; ++r)
    if (r != rank) spoil(sent + row * (size_t)(r * count), row, &length);
  return PMPI_Ialltoall(sent, length, type, recv, recv_count, recv_type, comm, request);
}

VISIBLE int MPI_Iallgatherv(const void* send, int count, MPI_Datatype type, void* recv, const int recv_counts[],
                            const int recv_places[], MPI_Datatype recv_type, MPI_Comm comm, MPI_Request* request) {
  if (spoiling == kAsSent)
    return PMPI_Iallgatherv(send, count, type, recv, recv_counts, recv_places, recv_type, comm, request);
  const size_t row = bytes_of(type);
  unsigned char* sent = copy_of(send, row * (size_t)count);
  int length = count;
  spoil(sent, row, &length);
  return PMPI_Iallgatherv(sent, length, type, recv, recv_counts, recv_places, recv_type, comm, request);
}
