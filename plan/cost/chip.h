/*
 * chip — predictions for a GPU that was measured (topo/measured_chip.h).
 *
 * Operations that move memory take curves through their measured times, in place of the constants
 * of devices.c. Products and attention keep the model of machine.h, because its tiles and lengths
 * say how their time depends on their shapes, and are multiplied by the ratio of measured and
 * predicted seconds at the nearest measured sizes. So a measured shape gets its measured time,
 * except that products with similar FLOPs share one ratio, their mean. What was not measured keeps
 * its constants, curve by curve.
 */
#ifndef MUSTER_PLAN_COST_CHIP_H
#define MUSTER_PLAN_COST_CHIP_H

#include "base/buf.h"
#include "plan/cost/machine.h"

struct job;

/* The storage type whose measurements count for steps in 2 bytes or in fp32: bf16, or fp16 if bf16
 * was not measured. */
enum measured_storage cost_chip_storage(const struct measured_chip *chip, bool low_precision);
/* m: as devices.c computes it for the chip in that precision. */
void cost_chip_apply(const struct measured_chip *chip, bool low_precision, struct cost_machine *m);
/* FLOP/s of the fastest measured product; 0: there is none. chip may be NULL. */
double cost_chip_flops(const struct measured_chip *chip);
/* One line for people: which of the constants of a kind of node with a chip were measured for
 * such a job, and which are published. */
void cost_chip_text(const struct node_kind *k, const struct job *job, struct buf *out);

#endif
