"""
Better search with embeddings
=============================

An embedding model was trained for something else: vectors of similar texts differ in directions
that are irrelevant to the search. `EmbeddingAdapter` learns a linear map from the clicks of past
queries. It maps only queries, so the documents do not have to be indexed again.
"""

import matplotlib.pyplot as plt
import numpy as np

from boostmetric import EmbeddingAdapter

rng = np.random.default_rng(0)
n_documents, n_queries, n_topics, D = 600, 300, 100, 24


# %%
# Generated vectors: a document has the vector of its topic plus noise. Queries are short, and their
# first eight dimensions are about style instead of the topic.
topics = rng.normal(size=(n_topics, D))
topic_of_document = rng.integers(0, n_topics, n_documents)
documents = topics[topic_of_document] + 0.5 * rng.normal(size=(n_documents, D))
clicked = rng.integers(0, n_documents, n_queries)
queries = documents[clicked] + 0.8 * rng.normal(size=(n_queries, D))
queries[:, :8] = 2 * rng.normal(size=(n_queries, 8))
clicks = np.column_stack([np.arange(n_queries), clicked])

# %%
# The strength of the adapter is cross-validated. If there were no reliable gain, `fit` would warn
# and leave the vectors unchanged.
adapter = EmbeddingAdapter(cv=3).fit(queries, documents=documents, judgments=clicks)
print(adapter.message_)

# %%
# The report compares the adapter with simple methods on queries that were used neither for learning
# nor for choosing the strength.
report = adapter.report_
print(report.verdict)

# %%
# The learning curve shows whether more clicks are worth collecting.
n_clicks = list(report.curve)
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
names = list(report.methods)
left.barh(names[::-1], [report.methods[name]["ndcg@10"].mean() for name in names[::-1]])
left.set(xlabel="nDCG@10", title="Held-out queries")
for name, style in (("adapter", "o-"), ("baseline", "--")):
    right.plot(n_clicks, [report.curve[n][name].mean() for n in n_clicks], style, label=name)
right.set(xlabel="number of training queries", ylabel="nDCG@10", title="Learning curve")
right.legend()
plt.show()
