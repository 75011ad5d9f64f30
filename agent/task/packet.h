/*
 * packet — what a program sends over its client channel. agent/client/muster_client.h describes the
 * protocol.
 *
 * To add a kind of packet:
 *   1. describe it in agent/client/muster_client.h;
 *   2. add its fields, its struct and a row in `kinds` of agent/task/packet.c;
 *   3. add its handler to struct task_client_handlers, and call it in agent/task/client.c;
 *   4. send it in agent/client/muster_client.h and agent/client/muster_client.py.
 */
#ifndef MUSTER_AGENT_TASK_PACKET_H
#define MUSTER_AGENT_TASK_PACKET_H

#include "base/err.h"
#include "base/fields.h"

enum { TASK_PACKET_MAX = 16384, TASK_PATH_MAX = 4095 };

/* clang-format off */
#define TASK_HELLO_FIELDS(F) \
	F(version, INT, REQUIRED, "of the protocol that the program speaks") \
	F(pid,     INT, REQUIRED, "the process that speaks")

#define TASK_STEP_FIELDS(F) \
	F(n,       COUNT, REQUIRED, "finished steps of the whole run, from 1") \
	F(tokens,  COUNT, OPTIONAL, "of the whole step, on all ranks together") \
	F(samples, COUNT, OPTIONAL, "of the whole step, on all ranks together")

#define TASK_CHECKPOINT_FIELDS(F) \
	F(path, TEXT,  REQUIRED, "absolute, or a URL; at most TASK_PATH_MAX bytes") \
	F(step, COUNT, REQUIRED, "the finished steps that it holds")
/* clang-format on */

struct task_hello {
	TASK_HELLO_FIELDS(FIELDS_MEMBER)
};

struct task_step {
	TASK_STEP_FIELDS(FIELDS_MEMBER)
	bool has_loss, has_lr, has_grad_norm;
	double loss, lr, grad_norm; /* perhaps NaN or infinite */
};

struct task_checkpoint {
	TASK_CHECKPOINT_FIELDS(FIELDS_MEMBER)
};

enum task_packet_kind {
	TASK_PACKET_NONE, /* nothing that this version knows, or nothing that can be used */
	TASK_PACKET_HELLO,
	TASK_PACKET_STEP,
	TASK_PACKET_CHECKPOINT
};

struct task_packet {
	enum task_packet_kind kind;
	union {
		struct task_hello hello;
		struct task_step step;
		struct task_checkpoint checkpoint;
	};
	json_t *root; /* owns the texts */
};

/* Reads a packet of any bytes. ERR_PROTO: it is malformed; *out nevertheless holds a step whose n is
 * valid, without its invalid members. The caller calls task_packet_fini in any case. */
int task_packet_read(const void *data, size_t len, struct task_packet *out, struct err *e);
void task_packet_fini(struct task_packet *p);

#endif
