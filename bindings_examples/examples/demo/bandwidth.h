/* How fast this machine reads memory with `threads` threads, in bytes per second: the limit that a
 * decoding step is held against. Median of several passes over a block much larger than the caches. */
#ifndef DEMO_BANDWIDTH_H_
#define DEMO_BANDWIDTH_H_

double read_bandwidth(int threads);
double seconds_now(void);
/* Bytes of a line of /proc/self/status such as "VmHWM:", 0 without it. */
double process_memory(const char* key);

#endif
