/** A call that did not succeed: an answer of an error, or none (status 0). */
export class Problem extends Error {
  constructor(status, { error, message, details = [], requestId = "" } = {}, retryAfter = null) {
    super(message || `the answer was ${status}`);
    this.status = status;
    this.code = error;
    this.details = details;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }

  static async of(response) {
    const said = await response.json().catch(() => ({}));
    return new Problem(response.status, said, Number(response.headers.get("Retry-After")) || null);
  }
}
