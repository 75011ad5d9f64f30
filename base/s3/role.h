/* role — temporary keys from the service of a container or of a cloud machine. For credentials.c. */
#ifndef MUSTER_BASE_S3_ROLE_H
#define MUSTER_BASE_S3_ROLE_H

#include "base/s3/sign.h"

/* 1: found; 0: there is no such service here; -1: it failed. */
int s3_role_of_container(struct s3_keys *k, struct err *e);
int s3_role_of_machine(struct s3_keys *k, struct err *e);

#endif
