/*
 * credentials — the keys with which requests to an object store are signed, from the first of:
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN;
 *   2. the profile AWS_PROFILE (default) of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials), a file
 *      that only its owner may read;
 *   3. a container's: AWS_CONTAINER_CREDENTIALS_FULL_URI or …_RELATIVE_URI, with the token of
 *      AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or AWS_CONTAINER_AUTHORIZATION_TOKEN;
 *   4. the role of the machine (IMDSv2), unless AWS_EC2_METADATA_DISABLED is true; its service is
 *      at AWS_EC2_METADATA_SERVICE_ENDPOINT (http://169.254.169.254).
 *
 * Temporary keys are fetched again before they expire. No key ever appears in an error or a log,
 * and closing wipes them. The functions may be called from several threads.
 */
#ifndef MUSTER_BASE_S3_CREDENTIALS_H
#define MUSTER_BASE_S3_CREDENTIALS_H

#include "base/buf.h"
#include "base/s3/sign.h"

#include <stdbool.h>

struct s3_credentials;

struct s3_credentials *s3_credentials_open(void); /* NULL: no memory */
void s3_credentials_close(struct s3_credentials *c);

/* Copies the keys; the caller wipes them with s3_keys_wipe. ERR_AUTH: there are none, or their
 * source is not right. */
int s3_credentials_get(struct s3_credentials *c, struct s3_keys *out, struct err *e);
/* The store refused the keys as expired: the next call fetches new ones. */
void s3_credentials_expired(struct s3_credentials *c);
void s3_keys_wipe(struct s3_keys *k);

/* The profile's keys in the text of a credentials file. 1: found; 0: there is no such profile; -1:
 * it is not complete, or its keys are not printable. `name`: of the file, in the error. */
int s3_profile_parse(const char *text, const char *profile, const char *name, struct s3_keys *out,
		     struct err *e);
/* The keys in an answer of a container's or machine's service. `name`: of the service. */
int s3_role_parse(const char *text, size_t n, const char *name, struct s3_keys *out, struct err *e);

#endif
