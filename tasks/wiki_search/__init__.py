"""Wikipedia article search (Wu et al. 2018, StarSpace, arXiv 1709.03856; paper section 3): which article is this from?

`-t polyagents.tasks.wiki_search`, on data that `polyagents build_wiki_search` makes; docs/wiki-search.md. An example:

    He quit school in the third grade (age 9) and pursued a career as a lightning calculator.
        -> Willis Dysart Willis Nelson Dysart is an American mental calculator. Born in the U.S. state of Georgia ...

The text is a sentence of an article, the label is the article without it, ranked among 10,000 other articles.
"""

from polyagents.tasks import teachers_of

__all__ = ["CrossTeacher", "DefaultTeacher", "Sample"]
__getattr__ = teachers_of(__name__, __all__)
