/*
 * devices — how a task names GPUs in CUDA_VISIBLE_DEVICES.
 *
 * The plan numbers the GPUs of a node as a process sees them. If the agent itself sees only some of
 * them, because its own CUDA_VISIBLE_DEVICES names them, their numbers are places in that list.
 *
 * Source: CUDA C++ Programming Guide, section on environment variables.
 */
#ifndef MUSTER_AGENT_TASK_DEVICES_H
#define MUSTER_AGENT_TASK_DEVICES_H

#include "base/buf.h"

/* Appends the names of these devices, numbers of the plan such as "1,0". visible: the agent's variable;
 * NULL or "": it sees all of them. A device beyond the end of that list keeps its number. */
void task_devices_name(const char *visible, const char *devices, struct buf *out);

#endif
