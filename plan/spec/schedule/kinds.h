/*
 * schedule_kinds — the list of pipeline schedules.
 *
 *     naive          a micro-batch goes through all stages and back before the next one begins
 *     gpipe          all forward passes, then all backward passes (Huang et al., arXiv 1811.06965)
 *     1f1b           as many forward passes ahead as there are ranks behind, then one forward and
 *                    one backward in turn (PipeDream-flush, Narayanan et al., arXiv 2006.09503)
 *     interleaved    1f1b over several chunks per rank (Narayanan et al., arXiv 2104.04473).
 *                    Micro-batches go in groups of at least as many as there are ranks; their
 *                    number need not be a multiple of the number of ranks
 *     zb-h1          1f1b whose weight passes fill the bubble, within 1f1b's memory (Qi et al.,
 *                    arXiv 2401.10241)
 *     zb-v           two chunks per rank, there and back; if the three passes take equally long, a
 *                    rank never waits between its first step and its last (the same paper, and
 *                    arXiv 2405.15362)
 *     breadth-first  chunks as in interleaved, but all micro-batches pass a chunk before the next
 *                    one, and the same backwards (Lamy-Poirier, arXiv 2211.05953)
 *
 * A line of the list below holds: the name in enum job_schedule, the row that carries the
 * schedule's traits (without its prefix schedule_), the value of parallel.schedule, and the line of
 * `muster run --help`. The enum, the words of the job key, its help and the table of rows are made
 * from this list, so they cannot disagree. The first line is the default. A new schedule goes to
 * the end: the search tries schedules in this order. schedule.h holds the whole recipe.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_KINDS_H
#define MUSTER_PLAN_SPEC_SCHEDULE_KINDS_H

/* clang-format off */
#define SCHEDULE_LIST(X) \
	X(1F1B, one_f_one_b, "1f1b", "each rank alternates one forward and one backward pass, which keeps few activations.") \
	X(GPIPE, gpipe, "gpipe", "all forward passes, then all backward passes.") \
	X(NAIVE, naive, "naive", "one micro-batch at a time, for comparison.") \
	X(INTERLEAVED, interleaved, "interleaved", "1f1b over several virtual stages per rank, with a smaller bubble.") \
	X(ZB_H1, zb_h1, "zb-h1", "1f1b with the backward pass in two halves, with a smaller bubble in the same memory.") \
	X(ZB_V, zb_v, "zb-v", "two virtual stages per rank in the shape of a V, with almost no bubble.") \
	X(BREADTH_FIRST, breadth_first, "breadth-first", "all micro-batches pass a virtual stage before the next one; keeps all activations.")
/* clang-format on */

enum job_schedule {
#define X(name, row, word, doc) SCHEDULE_##name,
	SCHEDULE_LIST(X)
#undef X
		SCHEDULES /* how many there are */
};

/* The values of parallel.schedule in the order of the enum, NULL after the last. */
extern const char *const schedule_words[SCHEDULES + 1];

#endif
