/*
 * upload — writes an object that does not fit in memory: in parts, S3_PARTS of them at a time.
 *
 * An object of one part is sent whole. Parts are of S3_PART bytes; those of an object of more than
 * 2000 parts become larger, since a store takes at most 10,000. The store's checksum of each part,
 * and at the end its checksum of the whole and the size, are compared with ours, so that a lost part
 * is found. A store that keeps no checksums is trusted for all but the size. An upload that fails or
 * is cut is aborted, so that its parts cost nothing.
 *
 * Requests progress only inside these functions. One thread uses an upload at a time.
 */
#ifndef MUSTER_BASE_S3_UPLOAD_H
#define MUSTER_BASE_S3_UPLOAD_H

#include "base/s3/object.h"

enum { S3_PART = 16 << 20, S3_PARTS = 4 };

struct s3_upload;

int s3_upload_open(struct s3_client *c, const struct s3_place *at, struct s3_upload **out,
		   struct err *e);
int s3_upload_write(struct s3_upload *u, const void *data, size_t n, struct err *e);
/* Completes the object and closes the upload, also if it fails. The object must not exist before,
 * unless it has the same bytes. */
int s3_upload_finish(struct s3_upload *u, struct err *e);
/* Aborts and closes it. */
void s3_upload_cut(struct s3_upload *u);

#endif
