/* diagnose_text — the words that a diagnosis is made of; for the files of diagnose.h. */
#ifndef MUSTER_LIBCOMM_FLIGHT_DIAGNOSIS_TEXT_H
#define MUSTER_LIBCOMM_FLIGHT_DIAGNOSIS_TEXT_H

#include "libcomm/flight/diagnose.h"

/* Adds a rank to those that the diagnosis names. */
int comm_diagnosis_add_rank(struct diagnosis *d, int rank, struct err *e);

/* "rank 3", "ranks 0-2, 5"; sorts them. */
void comm_diagnosis_put_ranks(struct buf *b, int *ranks, int n);
/* "rank 3 (node7)" */
void comm_diagnosis_put_rank(struct buf *b, const struct trace *t, int rank);
/* "group tp", and who is in it where several have that name. */
void comm_diagnosis_put_group(struct buf *b, const struct trace *t, const struct trace_group *g);
/* "all_reduce number 40 of group tp1" */
void comm_diagnosis_put_op(struct buf *b, const struct trace *t, const struct trace_group *g,
			   const struct trace_op *op);
/* How long an operation has waited when it ended or was dumped. */
double comm_trace_waited_s(const struct trace *t, const struct trace_part *p,
			   const struct trace_op *op);

/* mismatch.c: the first of d's findings. */
int comm_diagnosis_find_mismatch(const struct trace *t, struct diagnosis *d, struct err *e);

#endif
