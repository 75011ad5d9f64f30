/*
 * token — the secret that a scrape must show: of metrics.token_file, otherwise of the variable
 * MUSTER_METRICS_TOKEN. It is neither in the job nor in the run folder.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_TOKEN_H
#define MUSTER_LAUNCHER_EXPORTS_TOKEN_H

#include "base/err.h"

#include <stdbool.h>

#define EXPORTS_TOKEN_VARIABLE "MUSTER_METRICS_TOKEN"

enum { EXPORTS_TOKEN = 512, EXPORTS_TOKEN_LEAST = 16 };

/* out: "" if there is none. file: metrics.token_file, which must be a regular file of this user that
 * nobody else may read; "": none. */
int exports_token_read(const char *file, char out[EXPORTS_TOKEN], struct err *e);
/* Whether the value of the header Authorization is "Bearer TOKEN". It takes the same time wherever
 * the two differ. NULL: there is no such header. */
bool exports_token_matches(const char *token, const char *header);

#endif
