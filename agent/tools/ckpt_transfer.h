/* ckpt_transfer — the common part of `ckpt push` and `ckpt pull`: copies checkpoints between a
 * folder and an object store. */
#ifndef MUSTER_AGENT_TOOLS_CKPT_TRANSFER_H
#define MUSTER_AGENT_TOOLS_CKPT_TRANSFER_H

#include "agent/tools/tools.h"

/* Parses the command line FROM TO [--all] [--limit N] [--replace] [--json], and copies. remote: which
 * of the two words must be the address of an object store, 0 or 1. */
int tool_ckpt_transfer(const struct tool *t, int argc, char **argv, int remote);

/* The paragraphs that both pages have. */
#define TOOL_CKPT_TRANSFER_PAGE \
	"  The last valid checkpoint is copied, or the one that is named. Every byte is " \
	"compared\n" \
	"  with the digests of the manifest on its way. The copy appears when it is complete. A\n" \
	"  copy that was interrupted continues: run the same command again.\n" \
	"\n" \
	"OPTIONS\n" \
	"  --all         copy all valid checkpoints, the last one first\n" \
	"  --limit N     send at most N megabytes per second\n" \
	"  --replace     replace another checkpoint of the same step\n" \
	"  --json        print as JSON: {checkpoints: [{path, step, bytes, files, sent, reused,\n" \
	"                there_already, seconds}]}\n" \
	"\n" \
	"ENVIRONMENT\n" \
	"  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    the keys; otherwise:\n" \
	"  AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE    a profile in a file (~/.aws/credentials)\n" \
	"                that only its owner may read; otherwise the role of the container\n" \
	"                (AWS_CONTAINER_CREDENTIALS_FULL_URI) or of the machine\n" \
	"                (AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_EC2_METADATA_DISABLED)\n" \
	"  AWS_REGION, AWS_DEFAULT_REGION              us-east-1 if neither is set\n" \
	"  AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL       another store than Amazon's, such as\n" \
	"                https://minio.example.org or http://127.0.0.1:9000\n" \
	"  AWS_CA_BUNDLE      certificates to trust in place of the system's\n" \
	"  AWS_MAX_ATTEMPTS   of each request; 8\n" \
	"  MUSTER_S3_STALL_S  seconds without a byte after which a request is sent again; 20\n" \
	"  MUSTER_S3_TOTAL_S  seconds after which a request is given up; 300\n"

#endif
