/*
 * recorder — asks a task for the dump of PyTorch's flight recorder.
 *
 * PyTorch's NCCL groups make a FIFO when they are made (run_path_torch_pipe), and a thread of theirs
 * looks into it about once a second: after any byte it writes the dump to the name that
 * run_path_torch_prefix() gives, with the rank added. The names are those of PyTorch's variables
 * TORCH_NCCL_DEBUG_INFO_PIPE_FILE and TORCH_NCCL_DEBUG_INFO_TEMP_FILE. A program without NCCL makes
 * no FIFO.
 */
#ifndef MUSTER_AGENT_TASK_RECORDER_H
#define MUSTER_AGENT_TASK_RECORDER_H

#include "base/err.h"

/* Asks, and does not wait: neither for the task nor for the dump. dir: the folder of the FIFO. The
 * process ignores SIGPIPE. ERR_NOTFOUND: there is no FIFO, or nobody reads it. ERR_IO: it cannot be
 * opened, or it is no FIFO. */
int task_recorder_request(const char *dir, int rank, struct err *e);

#endif
