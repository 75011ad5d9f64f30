/*
 * download — reads an object by ranges, ahead of its reader.
 *
 * A read that continues the one before begins to read ahead: up to S3_AHEAD ranges at a time, each
 * twice as long as the one before it, up to S3_RANGE bytes. Any other read drops what was read
 * ahead, so that many small reads of many objects do not fetch much more than they ask for.
 *
 * Requests progress only inside s3_download_read. One thread uses a download at a time.
 */
#ifndef MUSTER_BASE_S3_DOWNLOAD_H
#define MUSTER_BASE_S3_DOWNLOAD_H

#include "base/s3/s3.h"

enum { S3_RANGE = 8 << 20, S3_AHEAD = 4 };

struct s3_download;

/* size: of the object. Its tag, unless it is "", must still be the same when it is read. */
int s3_download_open(struct s3_client *c, const struct s3_place *at, int64_t size, const char *etag,
		     struct s3_download **out, struct err *e);
/* Reads exactly n bytes. */
int s3_download_read(struct s3_download *d, int64_t at, void *data, size_t n, struct err *e);
/* Drops what was read ahead, and the connections. Reading may continue. */
void s3_download_park(struct s3_download *d);
void s3_download_close(struct s3_download *d);

#endif
