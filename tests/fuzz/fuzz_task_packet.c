/* Any bytes that a program sends over its client channel: they are refused with a reason, or what they
 * give keeps to the protocol. */
#include "agent/task/packet.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_valid(const struct task_packet *p)
{
	switch (p->kind) {
	case TASK_PACKET_HELLO:
		return p->hello.version >= 1 && p->hello.pid >= 1;
	case TASK_PACKET_STEP:
		return p->step.n >= 1 && p->step.tokens >= 0 && p->step.samples >= 0;
	case TASK_PACKET_CHECKPOINT:
		return *p->checkpoint.path && strlen(p->checkpoint.path) <= TASK_PATH_MAX &&
		       p->checkpoint.step >= 0;
	case TASK_PACKET_NONE:
		return true;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct task_packet p;
	struct err e = ERR_INIT;
	int rc = task_packet_read(data, size, &p, &e);
	if (rc && (e.code != ERR_PROTO || !*e.text))
		abort();
	if (rc && p.kind != TASK_PACKET_NONE && p.kind != TASK_PACKET_STEP)
		abort();
	if (!is_valid(&p))
		abort();
	task_packet_fini(&p);
	return 0;
}
