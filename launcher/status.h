/* status — the exit statuses of `muster`. */
#ifndef MUSTER_LAUNCHER_STATUS_H
#define MUSTER_LAUNCHER_STATUS_H

enum {
	STATUS_DONE = 0,         /* done */
	STATUS_FAILED = 1,       /* the job failed */
	STATUS_USAGE = 2,        /* the command line or the job file is wrong */
	STATUS_CANNOT_START = 3, /* this machine or allocation cannot start it */
	STATUS_GAVE_UP = 4,      /* it failed again after restarts */
	STATUS_LOST = 5,         /* of muster status: the run's supervisor is gone without a word */
	STATUS_STOPPED = 75,     /* stopped on purpose; the same command continues */
	STATUS_PIPE = 141,       /* the reader of the output has gone, as after SIGPIPE */
};

#endif
