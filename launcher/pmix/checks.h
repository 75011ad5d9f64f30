/* checks — how launch_local checks and measures this host: launcher/launch.h has the contracts. */
#ifndef MUSTER_LAUNCHER_PMIX_CHECKS_H
#define MUSTER_LAUNCHER_PMIX_CHECKS_H

#include "launcher/launch.h"

int local_check_nodes(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e);
int local_burn_in(uv_loop_t *loop, const struct burn_in_request *r,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e);

#endif
