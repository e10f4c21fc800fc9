/* SPDX-License-Identifier: Apache-2.0 */
/* hex: bytes as two digits. Thread safe. */
#ifndef MCFS_HEX_H
#define MCFS_HEX_H

/* 0 to 15, whatever the case; -1: no digit. */
static inline int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Of the first two characters: 0 to 255, or -1. */
static inline int hex_byte(const char *digits)
{
	int high = hex_value(digits[0]), low = high < 0 ? -1 : hex_value(digits[1]);

	return low < 0 ? -1 : 16 * high + low;
}

#endif
