/* client — what the files of this room know of each other. */
#ifndef MUSTER_BASE_S3_CLIENT_H
#define MUSTER_BASE_S3_CLIENT_H

#include "base/http/pump.h"
#include "base/s3/credentials.h"
#include "base/s3/s3.h"

#include <pthread.h>

enum { S3_ENDPOINT = 256, S3_REGION = 64 };

struct s3_client {
	char endpoint[S3_ENDPOINT]; /* "": Amazon's; without a "/" at its end */
	char region[S3_REGION];
	char ca_file[1024]; /* "": the system's */
	struct s3_patience patience;
	double stall_s;
	struct s3_credentials *credentials;
	pthread_mutex_t lock;
	struct s3_line *spare;
};

struct s3_line {
	struct s3_client *client;
	struct http_pump *pump;
	struct s3_call *calls; /* that are not done */
	struct s3_line *next;
};

/* Makes the call's request ready to be sent: address, headers, signature. */
int s3_prepare(struct s3_client *c, struct s3_call *call, struct err *e);
/* Wipes what the signature was made of. */
void s3_unprepare(struct s3_call *call);

/* Sets call->err for an answer that is no success. */
void s3_explain(struct s3_call *call);
/* Reads the code of the error in the call's answer. */
void s3_read_code(struct s3_call *call, char *said, size_t n);

#endif
