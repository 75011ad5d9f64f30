/* s3_double — starts the store of tests/doubles/s3_server.py and points this process at it. */
#ifndef MUSTER_TESTS_UNIT_AGENT_S3_DOUBLE_H
#define MUSTER_TESTS_UNIT_AGENT_S3_DOUBLE_H

#include <stdbool.h>

/* False: there is no python3 here. */
bool s3_double_start(void);
void s3_double_stop(void);
/* Replaces the plan of failures. */
void s3_double_plan(const char *text);
/* How many requests of this operation came since the plan was replaced ("": all). */
int s3_double_count(const char *operation);

#endif
