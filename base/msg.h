/*
 * msg — the frames of the control channel between supervisor and agents.
 *
 * A frame on the wire:
 *
 *     u32 length      bytes that follow, little-endian, MSG_MAX at most
 *     u8[length]      sealed body (base/auth.h): ciphertext and tag
 *
 * and the body once opened:
 *
 *     u16 type        enum msg_type, little-endian
 *     u16 zero
 *     u32 generation  the launch it belongs to; another one is refused as stale
 *     u8[]            JSON object, UTF-8, without NUL; the fields are in the table below
 *
 * Whoever reads one takes nothing for granted: lengths, types, generations and
 * fields are checked, an unknown type is a protocol error and closes the
 * connection. To add a message: a line in MSG_TYPES, its fields in the
 * comment, a sender, a row in the receiver's table of handlers.
 */
#ifndef MUSTER_BASE_MSG_H
#define MUSTER_BASE_MSG_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

enum { MSG_MAX = 1 << 20, MSG_VERSION = 2 };

/*
 * agent to supervisor
 *   hello     {rank, world, node, pid, cpus, version}       first message after the handshake; cpus: those it may run on, such as "0-3,8"
 *   ready     {step, samples, phases: {name: seconds}}      communicators are up, state is loaded; training starts at step
 *   metrics   {step, loss, grad_norm, lr, tokens, samples, peak_bytes, seconds: step_s and the
 *             parts that it is the sum of, data_s, compute_s, recompute_s, tp_s, cp_s, ep_s, pp_s,
 *             dp_s, optimizer_s, checkpoint_s, other_s; in fp16 loss_scale, skipped: true when the
 *             gradients overflowed and nothing was updated; with experts cross_entropy,
 *             balance_loss, z_loss: what the loss is the sum of} one a step, from one of the ranks
 *             that have the loss (the last stage, tp 0, cp 0, dp 0); step: finished steps
 *   eval      {step, loss}                                   same rank
 *   progress  {step, phase, count}                           every rank, every heartbeat and soon after it moved: where the trainer is; count grows with each thing it does
 *   log       {level, text}                                  warnings and errors
 *   ckpt      {step, path, bytes, seconds, stall_s}          committed (world rank 0)
 *   series    {step}                                         same rank as metrics: all of them and all evaluations up to this step have been sent, and a
 *                                                          checkpoint of the step is about to be written
 *   signal    {number}                                       the agent got SIGTERM, SIGINT, SIGUSR1
 *   failed    {code, text}                                   the agent cannot go on; it exits after this
 *   finished  {step, peak_bytes, phases}                     the agent has done what was asked; it exits after this
 *   dumped    {error: text, when it failed}                  the answer to dump
 * supervisor to agent
 *   welcome   {job: text of the resolved INI, group_secret, threads, run: folder, resume, coords:
 *             {tp, dp, pp}, node, heartbeat_s, device: its number on the node, bus: that one's PCI
 *             address, "" where it has none, memory: bytes that it takes by the plan, crew: ranks
 *             of its node, cpus: those next to it, "" where that is not told, numa: its domain, -1
 *             likewise} group_secret: 64 hex digits that the generation's ranks alone know: the key
 *             of what they publish through PMIx resume: "none", the folder of a checkpoint, or
 *             "auto": the agent looks for the newest valid one itself (world rank 0, which tells
 *             the others)
 *   recorded  {step}                                         to world rank 0: the run folder holds the series up to this step, so that the checkpoint may be
 *                                                          committed. No run goes on behind a step that its series lacks, whatever the control channel lost;
 *                                                          lines that a full disk has lost hold no checkpoint up
 *   stop      {reason, checkpoint: true|false}               stop at the next step boundary, all ranks at the same one
 *   abort     {reason}                                       leave at once
 *   dump      {}                                             write the flight recorder (libcomm/flight/recorder.h) into RUN/trace/gen-<generation>
 */
#define MSG_TYPES(X) \
	X(MSG_HELLO, "hello") \
	X(MSG_READY, "ready") \
	X(MSG_METRICS, "metrics") \
	X(MSG_EVAL, "eval") \
	X(MSG_PROGRESS, "progress") \
	X(MSG_LOG, "log") \
	X(MSG_CKPT, "ckpt") \
	X(MSG_SIGNAL, "signal") \
	X(MSG_FAILED, "failed") \
	X(MSG_FINISHED, "finished") \
	X(MSG_WELCOME, "welcome") \
	X(MSG_STOP, "stop") \
	X(MSG_ABORT, "abort") \
	X(MSG_DUMP, "dump") \
	X(MSG_DUMPED, "dumped") \
	X(MSG_SERIES, "series") \
	X(MSG_RECORDED, "recorded")

enum msg_type {
	MSG_NONE,
#define MSG_ENUM(type, word) type,
	MSG_TYPES(MSG_ENUM)
#undef MSG_ENUM
		MSG_COUNT
};

struct msg {
	enum msg_type type;
	uint32_t generation;
	json_t *body; /* an object; owned by the msg */
};

const char *msg_word(enum msg_type type);
void msg_fini(struct msg *m);

/* Appends the opened body of a message to `out`. Borrows `body`, which may be NULL for {}. */
int msg_pack(enum msg_type type, uint32_t generation, json_t *body, struct buf *out, struct err *e);

/* Reads an opened body. ERR_PROTO for anything malformed; ERR_STALE, with the
 * message set, when it is well-formed but of another generation. */
int msg_unpack(const void *data, size_t len, uint32_t generation, struct msg *m, struct err *e);

#endif
