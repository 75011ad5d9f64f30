/* diagnosis_text — the words of a diagnosis; for the files of diagnose.h. */
#ifndef MUSTER_LIBCOMM_FLIGHT_DIAGNOSIS_TEXT_H
#define MUSTER_LIBCOMM_FLIGHT_DIAGNOSIS_TEXT_H

#include "libcomm/flight/diagnose.h"

/* Adds a rank to those that the diagnosis names. */
int comm_diagnosis_add_rank(struct diagnosis *d, int rank, struct err *e);

/* Appends "rank 3" or "ranks 0-2, 5"; sorts the ranks. */
void comm_diagnosis_put_ranks(struct buf *b, int *ranks, int n);
/* Appends "rank 3 (node7)". */
void comm_diagnosis_put_rank(struct buf *b, const struct trace *t, int rank);
/* Appends "group tp", with its ranks if several groups have that name. */
void comm_diagnosis_put_group(struct buf *b, const struct trace *t, const struct trace_group *g);
/* Appends "all_reduce number 40 of group tp1". */
void comm_diagnosis_put_op(struct buf *b, const struct trace *t, const struct trace_group *g,
			   const struct trace_op *op);
/* How long an operation had waited when it ended or was dumped. */
double comm_trace_waited_s(const struct trace *t, const struct trace_part *p,
			   const struct trace_op *op);

/* mismatch.c: looks for a mismatch, the first of the findings. */
int comm_diagnosis_find_mismatch(const struct trace *t, struct diagnosis *d, struct err *e);

#endif
