/*
 * export_ops — one way in which other tools read a run. For the files of this room.
 *
 * All calls come from the loop's thread and return at once. `x` is what open() has set.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_EXPORT_OPS_H
#define MUSTER_LAUNCHER_EXPORTS_EXPORT_OPS_H

#include "base/buf.h"
#include "launcher/exports/exports.h"

struct export_ops {
	const char *key; /* of the job that asks for it, such as "metrics.listen" */
	bool (*is_wanted)(const struct job *job);
	int (*open)(const struct exports_options *o, void **x, struct err *e);
	void (*close)(void *x, enum rundir_state_id state);

	/* The rest is optional. */
	/* True: something went wrong since the last call, and people should know. */
	bool (*trouble)(void *x, struct err *e);
	void (*begin)(void *x, const struct export_begin *b);
	void (*step)(void *x, const struct msg_metrics *m, double predicted_s);
	void (*eval)(void *x, const struct msg_eval *m);
	void (*checkpoint)(void *x, const struct msg_ckpt *m);
	/* The current numbers in the text format of Prometheus, and in that of OpenMetrics, every
	 * text_s seconds. False: it is busy; ask again. */
	bool (*text)(void *x, const struct buf *prometheus, const struct buf *open_metrics);
	double text_s;
};

extern const struct export_ops exports_tensorboard, exports_listener, exports_textfile;

#endif
