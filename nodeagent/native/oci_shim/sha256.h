#ifndef NODEAGENT_SHA256_H
#define NODEAGENT_SHA256_H

#include <stddef.h>
#include <stdint.h>

void sha256(const void *from, size_t size, unsigned char sum[32]);
/* on a processor without instructions for the sum */
void sha256_plainly(const void *from, size_t size, unsigned char sum[32]);

#endif
