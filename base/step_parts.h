/*
 * step_parts — the parts that the time of one training step is split into.
 *
 * The engine measures them (agent/engine/train/step_report.h), the message `metrics` carries them,
 * metrics.jsonl holds them, and the supervisor compares them with the plan's prediction
 * (launcher/supervise/contract.h), whose parts are the same (plan/spec/step_time.h). All of these
 * are generated from this list.
 *
 * To add a part: add a row here; set the member <name>_s where the engine measures it; and set the
 * member <name> of struct plan_time in plan/cost/step.c if the plan predicts it.
 *
 * The parts are disjoint and add up to the step. `other` is the time that belongs to no other part;
 * it stays the last row.
 */
#ifndef MUSTER_BASE_STEP_PARTS_H
#define MUSTER_BASE_STEP_PARTS_H

/* clang-format off */

/* with (X's own argument), ENUM, member (its key in JSON is <member>_s), name for people, whether
 * it is communication, doc */
#define STEP_PARTS(X, with) \
	X(with, DATA,       data,       "data",             false, "seconds the rank waited for its samples") \
	X(with, COMPUTE,    compute,    "compute",          false, "seconds of forward and backward") \
	X(with, RECOMPUTE,  recompute,  "recomputation",    false, "seconds of forward repeated in the backward pass") \
	X(with, TP,         tp,         "tensor parallel",  true,  "seconds in collectives of the tensor-parallel group") \
	X(with, CP,         cp,         "context parallel", true,  "seconds in transfers of the context-parallel ring") \
	X(with, EP,         ep,         "expert parallel",  true,  "seconds in all-to-all of the expert-parallel group") \
	X(with, PP,         pp,         "pipeline",         true,  "seconds the rank waited for other stages") \
	X(with, DP,         dp,         "data parallel",    true,  "seconds in collectives of the data-parallel group") \
	X(with, OPTIMIZER,  optimizer,  "optimizer",        false, "seconds of clipping and the optimizer") \
	X(with, CHECKPOINT, checkpoint, "checkpoints",      false, "seconds the step was held up by a checkpoint") \
	X(with, OTHER,      other,      "other",            false, "seconds that belong to no other part")

enum step_part {
#define STEP_PART_ENUM(with, ENUM, member, name, transfers, doc) STEP_PART_##ENUM,
	STEP_PARTS(STEP_PART_ENUM, )
#undef STEP_PART_ENUM
	STEP_PART_COUNT
};

/* Expands the list to rows of a table of fields (base/fields.h). */
#define STEP_PART_FIELD(F, ENUM, member, name, transfers, doc) F(member##_s, NUMBER, REQUIRED, doc)

/* clang-format on */

#endif
